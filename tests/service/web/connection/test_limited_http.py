"""Limits of a connection: a large header and a body that is not wanted take no memory."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import pytest

from retouch.bench.load import raise_open_file_limit
from service.web.connection.limited_http import MAX_HEADER_BYTES, ConnectionLimits
from tests.serving.local_server import Running
from tests.serving.waiting import wait_until

Serve = Callable[..., Any]


def exchange(url: str, *pieces: bytes) -> bytes:
    """Send pieces over a raw socket; returns what came back until the server closed or answered."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server may refuse while the rest is still being sent
        try:
            return connection.recv(65536)
        except ConnectionResetError:
            return b""


BEGIN = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
HALF = b"Host: localhost\r\nX-Filler: " + b"a" * 40_000 + b"\r\n\r\n"


def test_an_ordinary_request_passes(serve: Serve) -> None:
    assert b" 200 OK" in exchange(serve().url, BEGIN + b"Connection: close\r\n\r\n")


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([BEGIN, *[b"X-Filler: " + b"a" * 1000 + b"\r\n"] * 200, b"\r\n"], id="many lines"),
        pytest.param([BEGIN + b"X-F: 1\r\n" * 10_000 + b"\r\n"], id="many small lines"),
        pytest.param([b"GET /%b HTTP/1.1\r\n%b" % (b"a" * 40_000, HALF)], id="a path and lines"),
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


def test_a_header_of_many_small_lines_within_the_limit_passes(serve: Serve) -> None:
    assert b" 200 OK" in exchange(serve().url, BEGIN + b"X-F: 1\r\n" * 8_000 + b"Connection: close\r\n\r\n")


def test_two_requests_on_one_connection_each_have_their_own_allowance(serve: Serve) -> None:
    filler = b"X-Filler: " + b"a" * 40_000 + b"\r\n\r\n"
    running = serve()
    parts = urlsplit(running.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        for _ in range(3):
            connection.sendall(BEGIN + filler)
            reply = HTTPResponse(connection)
            reply.begin()
            assert reply.status == 200
            reply.read()  # header and body may arrive separately


def test_a_large_body_is_no_large_header(server: Running, files: dict[str, tuple[str, bytes, str]]) -> None:
    padded = {**files, "image": ("p.png", files["image"][1] + b"\0" * 500_000, "image/png")}
    with server.client() as client:
        assert client.post("/v1/inpaint", files=padded).status_code in (200, 400)


def test_a_connection_that_sends_no_header_is_closed(serve: Serve) -> None:
    running = serve(limits=ConnectionLimits(header_timeout_s=0.1))
    assert exchange(running.url) == b""
    assert exchange(running.url, b"GET /livez HT") == b""
    wait_until(lambda: b" 200 OK" in exchange(running.url, BEGIN + b"\r\n"))  # once this thread is quick enough


def test_a_client_that_goes_on_sending_after_its_refusal_is_cut_off(serve: Serve) -> None:
    running = serve(limits=ConnectionLimits(max_ignored_bytes=1_000_000), max_body_mb=0.01)
    parts = urlsplit(running.url)
    head = b"POST /v1/inpaint HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall(head + b"Content-Length: 1000000000000\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            connection.sendall(b"x" * 40_000_000)


def refused_posts(bodies: int, size: int) -> bytes:
    head = (
        b"POST /v1/inpaint HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % size
    )
    return (head + b"x" * size) * bodies


def trickle(connection: socket.socket) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        connection.sendall(b"x")
        time.sleep(0.05)


def test_each_refused_request_of_a_connection_has_an_allowance_of_its_own(serve: Serve) -> None:
    running = serve(limits=ConnectionLimits(max_ignored_bytes=1_000_000))
    parts = urlsplit(running.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        for _ in range(4):  # one connection, as a proxy's that many clients share
            connection.sendall(refused_posts(1, 600_000))
            reply = HTTPResponse(connection)
            reply.begin()
            assert reply.status == 415
            reply.read()


def test_a_refused_body_that_does_not_come_is_not_awaited_for_ever(serve: Serve) -> None:
    running = serve(limits=ConnectionLimits(ignored_body_timeout_s=0.3))
    parts = urlsplit(running.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall(refused_posts(1, 100_000)[:-50_000])
        assert connection.recv(65536).startswith(b"HTTP/1.1 415 ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            trickle(connection)


def test_a_header_that_comes_a_byte_at_a_time_has_no_longer_than_one_that_does_not_come(serve: Serve) -> None:
    running = serve(limits=ConnectionLimits(header_timeout_s=0.3))
    parts = urlsplit(running.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.settimeout(0.02)
        end = time.monotonic() + 20
        for byte in itertools.cycle(b"X-Slow: 1\r\n"):
            assert time.monotonic() < end, "it was never cut off"
            try:
                connection.sendall(bytes([byte]))
                if connection.recv(65536) == b"":
                    break
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break


@pytest.mark.parametrize(
    ("first", "later"),
    [(b"\r\nGET /livez HT", b""), (b"\r\n", b"\r\n")],
    ids=["a header begun with it", "an empty line"],
)
def test_what_follows_a_request_keeps_no_connection_open(serve: Serve, first: bytes, later: bytes) -> None:
    running = serve(limits=ConnectionLimits(header_timeout_s=1.0))
    parts = urlsplit(running.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(BEGIN + first)
        reply = HTTPResponse(connection)
        reply.begin()
        assert reply.status == 200
        reply.read()
        with suppress(BrokenPipeError, ConnectionResetError):  # it was closed before this thread sent more
            connection.sendall(later)
            assert connection.recv(65536) == b""


def test_a_thousand_idle_connections_block_no_client(serve: Serve, files: dict[str, tuple[str, bytes, str]]) -> None:
    raise_open_file_limit()
    running = serve(limits=ConnectionLimits(header_timeout_s=600.0))
    parts = urlsplit(running.url)
    with ExitStack() as stack:
        for number in range(1000):
            connection = stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=10))
            if number % 2:
                connection.sendall(BEGIN)  # half a header
        wait_until(lambda: len(running.server.server_state.connections) == 1000)
        with running.client() as client:
            for _ in range(20):
                assert client.post("/v1/inpaint", files=files).status_code == 200
        assert len(running.server.server_state.connections) >= 1000
    wait_until(lambda: not running.server.server_state.connections)


def test_bodies_that_are_sent_slowly_take_no_more_memory_than_there_is_for_them(serve: Serve) -> None:
    running = serve(max_memory_mb=0.2)
    parts = urlsplit(running.url)
    begin = b"POST /v1/inpaint HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    begin += b"Content-Length: 1000000\r\n\r\n--b\r\n"
    begin += b'Content-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as slow:
        slow.sendall(begin + b"x" * 80_000)
        wait_until(lambda: running.service.admission.bodies_bytes > 80_000)
        answer = exchange(running.url, begin + b"x" * 80_000)
        assert b" 503 " in answer.splitlines()[0]
        assert b"retry-after" in answer.lower()
    wait_until(lambda: running.service.admission.bodies_bytes == 0)
