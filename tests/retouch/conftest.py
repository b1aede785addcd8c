"""A small HTTP server with the service's headers that a test can make misbehave, and pictures to send to it."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from multipart import MultipartSegment, PushMultipartParser, parse_options_header
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.serving.waiting import wait_until

TEST_DATA = Path(__file__).parents[1] / "data"


@dataclass
class Contract:
    """The behaviour of the server, and the requests that it received."""

    url: str = ""
    busy: int = 0
    """Number of requests to refuse with 503."""
    retry_after: str | None = "0"
    stall_s: float = 0.0
    """Seconds to answer nothing, once."""
    delay_s: float = 0.0
    answers: float = math.inf
    """Number of requests to answer; those after them wait until the server ends."""
    gather: int = 0
    """Hold requests until this many are in flight, or half a minute has passed."""
    inside: int = 0
    most_inside: int = 0
    gathered: asyncio.Event = field(default_factory=asyncio.Event)
    unwelcome: bytes = b"unwelcome"
    """An image with this content is refused with a problem document, an image `plain` with plain text."""
    keeps_back: int = 0
    """Number of requested pictures to leave out of the reply."""
    asked: list[dict[str, str | bytes]] = field(default_factory=list)

    async def reply(self, request: Request) -> Response:
        asked = form_of(request.headers["content-type"], await request.body())
        self.asked.append({"task": request.path_params["task"], **asked})
        stall_s, self.stall_s = self.stall_s, 0.0
        time.sleep(stall_s)  # noqa: ASYNC251 -- the whole server shall stall
        number = len(self.asked)
        await asyncio.sleep(self.delay_s)
        while number > self.answers:  # noqa: ASYNC110 -- set to infinity by another thread, at the server's end
            await asyncio.sleep(0.01)
        await self._gathered()
        if self.busy:
            self.busy -= 1
            headers = {} if self.retry_after is None else {"Retry-After": self.retry_after}
            return problem(503, "overloaded", "the server is full", headers)
        image = asked.get("image", b"nothing")
        assert isinstance(image, bytes)
        if image == self.unwelcome:
            return problem(400, "invalid_image", "these bytes are no image")
        if image == b"plain":
            return Response("out of order", 502)
        headers = {
            "X-Model": "photos/1",
            "X-Engine": "fake",
            "X-Batch-Size": "2",
            "Server-Timing": "decode;dur=1.5, infer;dur=20",
        }
        several = int(str(asked.get("samples", asked.get("count", "1"))))
        bodies = [
            b"filled " + image + (b"" if n == 0 else b" %d" % n) for n in range(max(1, several - self.keeps_back))
        ]
        if several == 1:
            return Response(bodies[0], media_type="image/png", headers=headers)
        assert "multipart/mixed" in request.headers["accept"]
        parts = b"".join(b"--edge\r\nContent-Type: image/png\r\n\r\n" + body + b"\r\n" for body in bodies)
        return Response(parts + b"--edge--\r\n", media_type="multipart/mixed; boundary=edge", headers=headers)

    async def _gathered(self) -> None:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        if self.most_inside >= self.gather:
            self.gathered.set()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.gathered.wait(), 30)
        self.inside -= 1


def form_of(content_type: str, body: bytes) -> dict[str, str | bytes]:
    """Parse a multipart body: fields as text, files as bytes."""
    sent: dict[str, bytes] = {}
    fields: set[str] = set()
    name = ""
    with PushMultipartParser(parse_options_header(content_type)[1]["boundary"]) as parser:
        for event in parser.parse(body):
            if isinstance(event, MultipartSegment):
                name = event.name  # type: ignore[assignment]
                sent[name] = b""
                fields |= {name} if event.filename is None else set()
            elif event:
                sent[name] += event
    return {name: data.decode() if name in fields else data for name, data in sent.items()}


def problem(status: int, code: str, detail: str, headers: dict[str, str] | None = None) -> Response:
    body = {"status": status, "code": code, "detail": detail}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


@pytest.fixture
def contract() -> Iterator[Contract]:
    """Start the server."""
    contract = Contract()
    app = Starlette(routes=[Route("/v1/{task}", contract.reply, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        contract.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield contract
    finally:
        contract.answers = math.inf
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Make folders `images` (a.png, b.jpg, c.webp) and `masks` (the same stems, all png); each file holds its name."""
    for name in ("images/a.png", "images/b.jpg", "images/c.webp", "masks/a.png", "masks/b.png", "masks/c.png"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    (tmp_path / "images" / "notes.txt").write_text("no picture", "utf-8")
    return tmp_path


@pytest.fixture(
    params=[
        pytest.param((["--json", "gone/o.json"], "name a file in a folder that exists"), id="no folder"),
        pytest.param((["--plot", "."], ". cannot be written: name a file"), id="a folder as plot"),
        pytest.param(
            (["--json", "/proc/o.json"], "/proc/o.json cannot be written"), id="report where nobody can write"
        ),
        pytest.param((["--plot", "/proc/o.png"], "/proc/o.png cannot be written"), id="plot where nobody can write"),
        pytest.param((["--plot", "o.gif"], "must end in one of .png"), id="unknown kind of plot"),
    ]
)
def unwritable_report(request: pytest.FixtureRequest) -> Any:
    """Return arguments of a benchmark that name an unwritable report, and the expected message."""
    return request.param
