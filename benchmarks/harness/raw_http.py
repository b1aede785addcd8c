"""An HTTP/1.1 client that uses little CPU, because it shares the machine with the server under test.

A connection carries one request at a time and is kept for the next; the number of connections is not limited. Unlike
ordinary clients it can hang up, stall and send slowly.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from typing import NamedTuple, cast

import httptools


class Reply(NamedTuple):
    """A reply; status 0 if the connection ended before the reply was complete."""

    status: int
    headers: dict[str, str]
    body: bytes
    why: str = ""

    @property
    def code(self) -> str:
        """The code of a problem reply, or the reason why there is no reply."""
        if self.why:
            return self.why
        return self.body.partition(b'"code":"')[2].partition(b'"')[0].decode() if self.status >= 400 else ""


def encode(path: str, content_type: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """Encode a whole POST request."""
    extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n{extra}\r\n"
    )
    return head.encode("latin-1") + body


class Connection(asyncio.Protocol):
    """One connection to the server."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.open = False
        self.surplus = 0
        """The number of replies without a request."""
        self._reply: asyncio.Future[Reply] | None = None
        self._in_reply = False
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.open = cast("asyncio.Transport", transport), True

    def connection_lost(self, _exc: Exception | None) -> None:
        self.open = False
        self._finish(Reply(0, {}, b"", "cut off" if self._in_reply else "disconnected"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.transport.abort()
            self._finish(Reply(0, {}, b"", f"malformed reply: {error}"))

    def on_message_begin(self) -> None:
        self._headers, self._body, self._in_reply = {}, [], True
        self.surplus += self._reply is None or self._reply.done()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._in_reply = False
        if not self._parser.should_keep_alive():
            self.open = False
            self.transport.close()
        reply = Reply(self._parser.get_status_code(), self._headers, b"".join(self._body))
        self._parser = httptools.HttpResponseParser(self)
        self._finish(reply)

    def begin(self) -> asyncio.Future[Reply]:
        """Expect a reply to the bytes that are written from now on."""
        self._reply = asyncio.get_running_loop().create_future()
        if not self.open:
            self._finish(Reply(0, {}, b"", "disconnected"))
        return self._reply

    def _finish(self, reply: Reply) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)


class Client:
    """A client for one address without a limit on connections; never raises because of the server.

    Args:
        host: host of the server.
        port: port of the server.
        source: address to send from; empty for the one that the system chooses.
    """

    def __init__(self, host: str, port: int, source: str = "") -> None:
        self._address = (host, port)
        self._local = (source, 0) if source else None
        self._idle: list[Connection] = []
        self._all: weakref.WeakSet[Connection] = weakref.WeakSet()

    @property
    def surplus(self) -> int:
        """The number of replies without a request, on open connections."""
        return sum(connection.surplus for connection in self._all)

    async def connection(self, *, fresh: bool = False) -> Connection:
        """Return an idle connection, or a new one.

        Raises:
            OSError: the server cannot be reached.
        """
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.open:
                return connection
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, *self._address, local_addr=self._local)
        self._all.add(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request."""
        if connection.open:
            self._idle.append(connection)

    async def send(self, request: bytes) -> Reply:
        """Send a request and wait for its reply; cancelling it disconnects."""
        try:
            connection = await self.connection()
        except OSError as error:
            return Reply(0, {}, b"", type(error).__name__)
        reply = connection.begin()
        connection.transport.write(request)
        try:
            answered = await reply
        except asyncio.CancelledError:
            connection.transport.abort()
            raise
        self.give_back(connection)
        return answered

    async def get(self, path: str) -> Reply:
        """Send a GET request."""
        return await self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def close(self) -> None:
        """Close idle connections."""
        for connection in self._idle:
            connection.transport.close()
        self._idle.clear()
