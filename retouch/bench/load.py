"""Load generators for a server: an open loop sends at given times, a closed loop has a fixed number of clients.

In an open loop a request's latency counts from the time it was DUE, so it includes any stall of the generator or the
server. Otherwise a stall would hide the very requests that it delays (coordinated omission).
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
NO_REPLY = 0


@dataclass(frozen=True, slots=True)
class Payload:
    """An encoded request; encoded once and sent often."""

    path: str
    content_type: str
    body: bytes


class ServerReply(NamedTuple):
    """The reply to a request, unparsed: it is evaluated after the run, not during it."""

    status: int
    """HTTP status; 0 if there was no reply."""
    code: str = ""
    """The problem's code, or the reason why there was no reply."""
    detail: str = ""
    server_timing: str = ""
    batch_size: str = ""
    model: str = ""
    engine: str = ""


class Observation(NamedTuple):
    """The times of one request, in seconds since the run began, and its reply."""

    due_s: float
    sent_s: float
    done_s: float
    reply: ServerReply


class Sender(Protocol):
    """An object that sends requests; it reports failures of the server in the reply and raises nothing for them."""

    async def send(self, payload: Payload) -> ServerReply:
        """Send a request and wait for the whole reply."""


@dataclass(frozen=True, slots=True)
class LoadGenerator:
    """A load generator: open and closed loops over the same sender, payloads and clock."""

    sender: Sender
    payloads: list[Payload]
    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    on_reply: Callable[[Observation], None]
    grace_s: float
    """Seconds to wait for replies after the last request; requests without one by then are `unanswered`."""

    async def open_loop(self, due_times: Iterable[float]) -> None:
        """Send a request at each due time, without a limit on the number of pending requests."""
        begun = self.now()
        payloads = cycle(self.payloads)
        pending: set[asyncio.Task[None]] = set()
        async with self._ended(pending):
            for due_s in due_times:
                wait_s = begun + due_s - self.now()
                await self.sleep(max(wait_s, 0.0))  # sleeps even when late, because replies need the event loop too
                task = asyncio.create_task(self._send(next(payloads), begun, due_s))
                pending.add(task)
                task.add_done_callback(pending.discard)

    async def closed_loop(self, concurrency: int, duration_s: float) -> None:
        """Let `concurrency` clients each send one request after another for `duration_s`."""
        begun = self.now()
        payloads = cycle(self.payloads)
        clients = {asyncio.create_task(self._run_client(payloads, begun, duration_s)) for _ in range(concurrency)}
        async with self._ended(clients):
            await self.sleep(duration_s)

    async def _run_client(self, payloads: Iterator[Payload], begun: float, duration_s: float) -> None:
        while (now_s := self.now() - begun) < duration_s:
            await self._send(next(payloads), begun, now_s)

    async def _send(self, payload: Payload, begun: float, due_s: float) -> None:
        sent_s = self.now() - begun
        reply = ServerReply(NO_REPLY, "unanswered")
        try:
            reply = await self.sender.send(payload)
        finally:
            self.on_reply(Observation(due_s, sent_s, self.now() - begun, reply))

    @asynccontextmanager
    async def _ended(self, tasks: set[asyncio.Task[None]]) -> AsyncIterator[None]:
        """After the block, wait `grace_s` for the tasks and cancel the rest; cancel all at once if interrupted."""
        try:
            yield
            if tasks:
                await asyncio.wait(set(tasks), timeout=self.grace_s)
        finally:
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def run_on_uvloop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop if it is installed: the generator shares the machine with the server under test."""
    try:
        import uvloop  # noqa: PLC0415 -- does not exist for Windows
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def raise_open_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit: an open loop does not limit its connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
