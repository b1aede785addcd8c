"""A real S3 server on loopback, behind a proxy that a test can make slow, failing or unreachable."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from tests.serving.backing.s3_server import KEY, SECRET, Bucket, serving_bucket
from tests.serving.ports import free_port

Mood = Literal["good", "slow", "failing", "gone"]
_CHUNK = 65_536


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    """rclone's S3 server, which requires an access key."""
    with serving_bucket(tmp_path) as running:
        yield running


@dataclass
class Proxy:
    """A TCP proxy. slow: 0.3 s before the first byte; failing: 503 for every request; gone: connections are refused."""

    target: int
    mood: Mood = "good"
    port: int = field(default_factory=free_port)
    connections: int = 0
    _listener: socket.socket | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def become(self, mood: Mood) -> None:
        """Set the mood; for `failing` and `gone`, open connections are closed at their next request."""
        self.mood = mood
        if mood == "gone":
            self.close()
        elif self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            first = client.recv(_CHUNK)
            if self.mood == "failing":
                client.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            if self.mood == "slow":
                time.sleep(0.3)
            with closing(socket.create_connection(("127.0.0.1", self.target))) as server:
                server.sendall(first)
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                while data := client.recv(_CHUNK):
                    if self.mood in ("failing", "gone"):
                        break
                    server.sendall(data)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[Proxy]:
    """The proxy in front of the bucket's server."""
    one = Proxy(bucket.port)
    one.become("good")
    yield one
    one.close()


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the bucket's access key into the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
