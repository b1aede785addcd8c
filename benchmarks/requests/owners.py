"""Runs hostile and honest connections against one address, and checks that each receives its own replies."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import cv2
import httptools
import numpy as np
import numpy.typing as npt

from benchmarks.harness.raw_http import Connection, Reply, encode
from benchmarks.requests.variants import Exchange
from retouch.bench.sender import encode as encode_form

SIDE = 16
_REPLY_TIMEOUT_S = 20.0


@dataclass
class Counts:
    """The counts of a run; from `wrong_client` on they must stay 0."""

    requests: int = 0
    """Requests of the hostile connections, not counting hidden ones."""
    well_formed: int = 0
    answered: int = 0
    """Well-formed requests that got the correct status."""
    sent_again: int = 0
    """Well-formed requests sent again, because the connection was closed after the reply to an earlier one."""
    honest: int = 0
    honest_answered: int = 0
    honest_connections: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Well-formed requests that were not answered correctly, by kind and by the actual result."""
    wrong_client: int = 0
    """Replies with the id, or the picture, of another connection."""
    hidden: int = 0
    """Replies to a body that the server took for a request."""
    surplus: int = 0
    """Replies beyond one for each request, or in another order."""

    @property
    def wrong(self) -> int:
        return self.wrong_client + self.hidden + self.surplus


class _Replies:
    """Parses the replies on one connection: (request id, status)."""

    def __init__(self, wanted: int) -> None:
        self.replies: list[tuple[str, int]] = []
        self.enough = asyncio.Event()
        self._wanted, self._id = wanted, ""
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._id = ""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self._id = value.decode("latin-1")

    def on_message_complete(self) -> None:
        if (status := self._parser.get_status_code()) >= 200:
            self.replies.append((self._id, status))
            if len(self.replies) >= self._wanted:
                self.enough.set()


async def send(exchange: Exchange, port: int, pause_s: float, counts: Counts) -> None:
    """Send an exchange and check the replies; requests left unanswered are sent again one by one."""
    timeout_s = _REPLY_TIMEOUT_S if exchange.well_formed else 1.0
    replies = await _exchanged(exchange.pieces, len(exchange.requests), port, pause_s, timeout_s)
    if exchange.well_formed and replies:
        for request in exchange.requests[len(replies) :]:
            counts.sent_again += 1
            replies += await _exchanged((request.whole,), 1, port, pause_s, timeout_s)
    judge(exchange, replies, counts)


async def _exchanged(
    pieces: tuple[bytes, ...], wanted: int, port: int, pause_s: float, timeout_s: float
) -> list[tuple[str, int]]:
    """Return id and status of each reply on a connection that sends these pieces."""
    replies = _Replies(wanted)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    receiving = asyncio.create_task(_receive(reader, replies))
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
    enough = asyncio.create_task(replies.enough.wait())
    await asyncio.wait({receiving, enough}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(2 * pause_s)  # waits for surplus replies
    enough.cancel()
    receiving.cancel()
    writer.transport.abort()
    await asyncio.gather(receiving, enough, return_exceptions=True)
    return replies.replies


async def _receive(reader: asyncio.StreamReader, replies: _Replies) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            replies.feed(data)


def judge(exchange: Exchange, replies: list[tuple[str, int]], counts: Counts) -> None:
    """Count the replies on one connection; replies without a known id come from a proxy or concern the header."""
    own_prefix = f"{exchange.hidden.split('-')[0]}-"
    counts.requests += len(exchange.requests)
    named = [one for one in replies if one[0].startswith(("c", "honest")) and "-" in one[0]]
    counts.wrong_client += sum(not name.startswith(own_prefix) for name, _ in named)
    own = [name for name, _ in named if name.startswith(own_prefix) and name != exchange.hidden]
    counts.surplus += sum(count - 1 for count in Counter(own).values())
    if not exchange.well_formed:  # its body may be read as a request, but one of this client
        return
    counts.hidden += sum(name == exchange.hidden for name, _ in named)
    counts.surplus += max(0, len(replies) - len(exchange.requests)) + (own != sorted(own, key=_number))
    counts.well_formed += len(exchange.requests)
    missing = [
        (request.id, request.status) for request in exchange.requests if (request.id, request.status) not in replies
    ]
    counts.answered += len(exchange.requests) - len(missing)
    for _, status in missing:
        counts.kinds[f"{exchange.kind}: {status}, got {[status for _, status in replies]}"] += 1


def _number(name: str) -> int:
    return int(name.split("-")[1])


async def be_honest(client: int, port: int, key: str, counts: Counts, done: asyncio.Event) -> None:
    """Request pictures of one colour repeatedly on one connection, and check the colour of the replies."""
    connection: Connection | None = None
    for number in itertools.count():
        if done.is_set():
            break
        if connection is None or not connection.open:
            _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
            counts.honest_connections += 1
        name, colour = f"honest-{client}-{number}", (40 * client % 256, number % 256, number // 256 % 256)
        picture, mask = pictures(colour)
        form = encode_form("/v1/inpaint", {"image": picture, "mask": mask}, {"save": "false"})
        waiting = connection.begin()
        headers = {"X-Request-ID": name, "X-API-Key": key}
        connection.transport.write(encode("/v1/inpaint", form.content_type, form.body, headers))
        reply = await asyncio.wait_for(waiting, 60.0)
        counts.honest += 1
        counts.honest_answered += reply.status == 200
        counts.wrong_client += not _is_own(reply, name, colour)
        counts.surplus += connection.surplus
    if connection is not None:
        connection.transport.abort()
        await asyncio.sleep(0)  # the connection closes in the loop's next round


def pictures(colour: tuple[int, int, int]) -> tuple[bytes, bytes]:
    """Make a PNG of one colour, and a mask with a hole in its middle."""
    hole = np.zeros((SIDE, SIDE), np.uint8)
    hole[6:10, 6:10] = 255
    return _png(np.full((SIDE, SIDE, 3), colour, np.uint8)), _png(hole)


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    return cv2.imencode(".png", pixels)[1].tobytes()


def _is_own(reply: Reply, name: str, colour: tuple[int, int, int]) -> bool:
    """Return whether a reply belongs to the request; missing replies and replies of the proxy count as belonging."""
    if reply.status == 0 or (reply.status >= 400 and "x-request-id" not in reply.headers):
        return True
    if reply.headers.get("x-request-id") != name:
        return False
    if reply.status != 200:
        return True
    pixels = cv2.imdecode(np.frombuffer(reply.body, np.uint8), cv2.IMREAD_COLOR)
    return pixels is not None and tuple(pixels[0, 0]) == colour


async def run(
    exchanges: Iterable[Exchange], port: int, key: str, *, pause_s: float, at_once: int, clients: int
) -> Counts:
    """Run all exchanges, `at_once` at a time, concurrently with the honest clients."""
    counts, done = Counts(), asyncio.Event()
    honest = [asyncio.create_task(be_honest(client, port, key, counts, done)) for client in range(clients)]
    waiting = iter(exchanges)

    async def hostile() -> None:
        for exchange in waiting:
            await send(exchange, port, pause_s, counts)

    await asyncio.gather(*(hostile() for _ in range(at_once)))
    done.set()
    await asyncio.gather(*honest)
    return counts
