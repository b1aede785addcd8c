"""The protocol layer: a header of any size is not buffered."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from service import http
from service.http import MAX_HEADER_BYTES

Serve = Callable[..., Any]


def exchange(url: str, *pieces: bytes) -> bytes:
    """Send pieces over a raw socket; what came back until the server closed or answered."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused while we were still sending
        try:
            return connection.recv(65536)
        except ConnectionResetError:
            return b""


BEGIN = b"GET /livez HTTP/1.1\r\nHost: x\r\n"


def test_an_ordinary_request_passes(serve: Serve) -> None:
    assert b" 200 OK" in exchange(serve().url, BEGIN + b"Connection: close\r\n\r\n")


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([BEGIN, *[b"X-Filler: " + b"a" * 1000 + b"\r\n"] * 200, b"\r\n"], id="many lines"),
        pytest.param([BEGIN + b"X-Filler: ", *[b"a" * 16_384] * 64], id="one endless line"),
        pytest.param([BEGIN + b"X-Filler: " + b"a" * (MAX_HEADER_BYTES + 1) + b"\r\n\r\n"], id="one long line"),
        pytest.param([b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n"], id="an endless path"),
        pytest.param([b"\x16\x03\x01 this is not HTTP\r\n\r\n"], id="not HTTP"),
    ],
)
def test_a_header_that_is_too_large_or_no_header_is_refused_and_the_server_goes_on(
    serve: Serve, pieces: list[bytes]
) -> None:
    running = serve()
    answer = exchange(running.url, *pieces)
    assert answer == b"" or b" 400 " in answer.splitlines()[0]
    with running.client() as client:
        assert client.get("/livez").status_code == 200


def test_two_requests_on_one_connection_each_have_their_own_allowance(serve: Serve) -> None:
    filler = b"X-Filler: " + b"a" * 40_000 + b"\r\n\r\n"
    running = serve()
    parts = urlsplit(running.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        for _ in range(3):
            connection.sendall(BEGIN + filler)
            assert b" 200 OK" in connection.recv(65536)


def test_a_large_body_is_no_large_header(serve: Serve, files: dict[str, tuple[str, bytes, str]]) -> None:
    padded = {**files, "image": ("p.png", files["image"][1] + b"\0" * 500_000, "image/png")}
    with serve().client() as client:
        assert client.post("/v1/inpaint", files=padded).status_code in (200, 400)


def test_a_connection_that_sends_no_header_is_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEADER_TIMEOUT_S", 0.1)
    running = serve()
    assert exchange(running.url) == b""
    assert exchange(running.url, b"GET /livez HT") == b""
    assert b" 200 OK" in exchange(running.url, BEGIN + b"\r\n")


def test_a_client_that_goes_on_sending_after_its_refusal_is_cut_off(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_IGNORED_BYTES", 1_000_000)
    running = serve(max_body_mb=0.01)
    parts = urlsplit(running.url)
    head = b"POST /v1/inpaint HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall(head + b"Content-Length: 1000000000000\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            connection.sendall(b"x" * 40_000_000)
