"""A server for the client's tests, a server that cuts connections, and calls made with both clients."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retouch.client import AsyncRetouch, Retouch
from retouch.client.png import encode_png
from tests.serving.fake_models import fake_manifest, write_model, write_photos_and_facades
from tests.serving.local_server import Running, serving
from tests.serving.tensor_specs import latent


def client_models(root: Path) -> Path:
    """Write photos, facades, a model that generates and a diverse inpainting model, all for the fake engine."""
    write_photos_and_facades(root)
    square = {"kind": "fixed", "height": 32, "width": 32}
    write_model(root, fake_manifest("faces", "generate", inputs=[latent(16)], size=square))
    photos = fake_manifest("photos", "inpaint").model_dump(mode="json")
    write_model(root, fake_manifest("diverse", "inpaint", inputs=[*photos["inputs"], latent(16)]))
    return root


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for all tests of a module that only send requests."""
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, models_dir=client_models(folder / "models"), generate_model="faces") as running:
        yield running


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    return client_models(tmp_path / "models")


@pytest.fixture
def photo() -> bytes:
    """A PNG of 64×64 random pixels, the same every time."""
    return encode_png(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))


@pytest.fixture
def mask() -> bytes:
    """A PNG of 64×64 with a white square of 16×16 in the middle."""
    pixels = np.zeros((64, 64), np.bool_)
    pixels[24:40, 24:40] = True
    return encode_png(pixels)


Ask = Callable[..., Any]


def _ask(url: str, call: str, *arguments: Any, client: dict[str, Any] | None = None, **options: Any) -> Any:
    with Retouch(url, **(client or {})) as retouch:
        return getattr(retouch, call)(*arguments, **options)


def _ask_async(url: str, call: str, *arguments: Any, client: dict[str, Any] | None = None, **options: Any) -> Any:
    async def ask() -> Any:
        async with AsyncRetouch(url, **(client or {})) as retouch:
            return await getattr(retouch, call)(*arguments, **options)

    return asyncio.run(ask())


@pytest.fixture(params=[pytest.param(_ask, id="sync"), pytest.param(_ask_async, id="async")])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Make one call with a new client: `ask(url, "inpaint", image, mask, client={...}, **options)`."""
    asked: Ask = request.param
    return asked


@dataclass
class Scripted:
    """A server on a raw socket: it reads each request, sends the next bytes of its script, and cuts the connection."""

    script: list[bytes]
    requests: list[bytes] = field(default_factory=list)
    url: str = ""

    def header(self, name: str) -> list[str | None]:
        """Return the value of a header in each request; None where it was not sent."""
        found = []
        for request in self.requests:
            lines = (line.partition(": ") for line in request.partition(b"\r\n\r\n")[0].decode().split("\r\n"))
            found.append({key.lower(): value for key, _, value in lines}.get(name.lower()))
        return found

    def serve(self, listener: socket.socket) -> None:
        for reply in self.script:
            try:
                connection, _ = listener.accept()
            except OSError:  # the test has ended before the script
                return
            with connection:
                self.requests.append(_read_request(connection))
                connection.sendall(reply)


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(lengths[0].partition(b":")[2]) if lengths else 0
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    """Start a server with a script: `scripted(b"", reply(200, ...))`."""
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def start(*script: bytes) -> Scripted:
            made = Scripted([*script], url=f"http://127.0.0.1:{listener.getsockname()[1]}")
            threads.append(threading.Thread(target=made.serve, args=(listener,)))
            threads[-1].start()
            return made

        yield start
        listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)


def reply(status: int, body: bytes = b"", **headers: str) -> bytes:
    """Return an HTTP reply; underscores in names of headers become hyphens."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


FILLED = reply(200, b"a picture", Content_Type="image/png", X_Model="photos/1", X_Engine="fake", X_Request_ID="r9")
