"""Replies that clients read slowly, or do not read."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from service.web.connection.limited_http import ConnectionLimits, LimitedHttp, UnreadResponses
from tests.service.web.connection.bare_server import serving
from tests.serving.waiting import wait_until

Serve = Callable[..., Any]


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = bytes(12_000_000)
"""A reply that is larger than the system's buffers."""


async def reply_with_body(_: Scope, _receive: Receive, send: Send) -> None:
    length = [(b"content-length", b"%d" % len(BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": BODY})


@dataclass
class OneReply:
    """A server that answers each request with BODY."""

    server: uvicorn.Server
    unread: UnreadResponses

    @contextmanager
    def asked(self, requests: int = 1) -> Iterator[socket.socket]:
        """A connection that has sent requests and whose system holds little of a reply."""
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            connection.connect(self.server.servers[0].sockets[0].getsockname())
            connection.sendall(REQUEST * requests)
            yield connection


@contextmanager
def one_reply(**limits: float) -> Iterator[OneReply]:
    unread = UnreadResponses()
    protocol = partial(LimitedHttp, limits=ConnectionLimits(**limits), unread=unread)  # type: ignore[arg-type]
    with serving(protocol, reply_with_body) as server:
        yield OneReply(server, unread)


def read_slowly(connection: socket.socket, to_read: int = len(BODY)) -> int:
    """Read a reply at 1.5 MB/s on average, and return its bytes, fewer if the server ends the connection."""
    began, received = time.monotonic(), 0
    with suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            received += len(piece)
            if received >= to_read:
                break
            time.sleep(max(0.0, began + received / 1.5e6 - time.monotonic()))
    return received


def test_a_client_that_does_not_take_its_reply_is_cut_off(serve: Serve) -> None:
    running = serve(limits=ConnectionLimits(write_timeout_s=0.2))
    connections, before = running.server.server_state.connections, running.server.server_state.total_requests
    parts = urlsplit(running.url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((parts.hostname, parts.port))
        asked = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n\r\n"  # 1.5 MB each
        connection.sendall(asked * 20)
        wait_until(lambda: running.server.server_state.total_requests > before)
        wait_until(lambda: not connections)


def test_a_client_that_takes_its_replies_slowly_gets_all_of_them(serve: Serve) -> None:
    running = serve(limits=ConnectionLimits(write_timeout_s=3.0, min_read_rate=1e9))
    parts = urlsplit(running.url)
    asked = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n"  # 1.5 MB each
    began, received = time.monotonic(), 0
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # less than all of them, with the server's
        connection.connect((parts.hostname, parts.port))
        connection.sendall((asked + b"\r\n") * 19 + asked + b"Connection: close\r\n\r\n")
        while piece := connection.recv(65_536):
            received += len(piece)
            time.sleep(max(0.0, began + received / 7e6 - time.monotonic()))  # catches up after a pause
    assert received > 20 * 1_500_000
    assert time.monotonic() - began > 4.0, "the limit is for each of them"


def test_a_reply_that_is_read_steadily_may_take_longer_than_the_limit() -> None:
    with one_reply(write_timeout_s=3.0) as running, running.asked() as connection:
        began = time.monotonic()
        assert read_slowly(connection) >= len(BODY)
        assert time.monotonic() - began > 6.0
        wait_until(lambda: running.unread.nbytes == 0)


@pytest.mark.parametrize(
    "limits",
    [{"min_read_rate": 1e9}, {"max_unread_bytes": 1_000, "min_read_rate": 0.0}],
    ids=["too slowly", "while memory is short"],
)
def test_a_client_that_reads_a_reply_after_its_limit_is_cut_off(limits: dict[str, float]) -> None:
    with one_reply(write_timeout_s=0.3, **limits) as running, running.asked() as connection:
        assert read_slowly(connection) < len(BODY)
        assert running.server.server_state.total_requests == 1
        wait_until(lambda: running.unread.nbytes == 0)


def test_a_client_that_has_another_reply_waiting_on_its_connection_gets_no_time_after_the_limit() -> None:
    with one_reply(write_timeout_s=0.3, min_read_rate=0.0) as running, running.asked(requests=2) as connection:
        assert read_slowly(connection, 2 * len(BODY)) < len(BODY)
        wait_until(lambda: running.unread.nbytes == 0)
