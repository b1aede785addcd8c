"""HTTP/1.1 message framing: finds where each request ends, and ensures that each gets exactly one reply, its own.

Only framing separates requests on one connection, which may come from different clients behind a proxy, so framing
errors allow request smuggling. These gaps in uvicorn's protocol are closed:

- An `Upgrade` ended the message before its body, and the body was read as the next request.
- Trailers were added to the header fields, after the header had been checked.
- A malformed request was answered at once, before earlier requests on the connection, or twice.
- A reply that closes the connection was lost if the client was still sending.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.core.errors import InvalidRequest

LINGER_S = 1.0
"""Seconds of reading from a connection after the last reply; closing it with unread data would discard the reply."""
_HOST = re.compile(rb"[\w.~!$&'()*+,;=%:\[\]-]*", re.ASCII)
_INVALID = "Invalid HTTP request received."

Headers = Iterable[tuple[bytes, bytes]]
"""Header fields: pairs of a lower-case name and a value."""


def check_head(version: str, method: str, headers: Headers) -> None:
    """Check that every recipient finds the same host and the same end of the message (RFC 9112).

    Raises:
        InvalidRequest: another HTTP version, CONNECT, or an invalid `Host` or `Transfer-Encoding`.
    """
    if version not in ("1.0", "1.1"):
        raise InvalidRequest(f"HTTP/{version} is not supported; send HTTP/1.1")
    if method == "CONNECT":
        raise InvalidRequest("CONNECT is not supported: this server is not a proxy")
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise InvalidRequest(f"{len(hosts)} Host headers; send exactly one")
    if hosts and not _HOST.fullmatch(hosts[0]):
        raise InvalidRequest("the Host header is not a host; send NAME or NAME:PORT")
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if codings and (version == "1.0" or [coding.strip().lower() for coding in codings] != [b"chunked"]):
        raise InvalidRequest("the only Transfer-Encoding that is supported is 'chunked', with HTTP/1.1")


def head_without_upgrade(version: str, method: bytes, url: bytes, headers: Headers) -> bytes:
    """Return a request header without `Upgrade`, which a server may ignore (RFC 9110 §7.8)."""
    lines = [b"%s %s HTTP/%s" % (method, url, version.encode())]
    for name, value in headers:
        kept = value
        if name == b"connection":
            kept = b", ".join(word for word in map(bytes.strip, value.split(b",")) if word.lower() != b"upgrade")
        if name != b"upgrade" and (kept or not value):
            lines.append(b"%s: %s" % (name, kept))
    return b"\r\n".join([*lines, b"", b""])


class FramedHttp(HttpToolsProtocol):
    """uvicorn's httptools protocol, strict about where a message ends."""

    _in_body = False
    """Whether the newest request's header is complete and its body is not."""
    _kept_alive: bool | None = None
    """Keep-alive of a request with `Expect: 100-continue`, restored when its body arrives; None without one."""
    _refusal: str | None = None
    """Why the connection is refused and nothing more is read from it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wrap the transport so that it lingers; called by asyncio."""
        super().connection_made(transport)
        self.transport = LingeringTransport(transport, self._linger, self.loop.call_soon)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless the connection is closed or was refused."""
        self._unset_keepalive_if_required()
        if self._refusal is not None or self.transport.is_closing():
            return
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self.refuse(str(cause) if isinstance(cause, InvalidRequest) else _INVALID)

    def _feed(self, data: bytes) -> None:
        rest: bytes | memoryview = data
        while rest:
            rest = self._feed_up_to_upgrade(rest)

    def _feed_up_to_upgrade(self, data: bytes | memoryview) -> bytes | memoryview:
        """Feed the parser, and return the data after a header that had to be read again."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as reached:
            self._parse_again_without_upgrade()
            return memoryview(data)[reached.args[0] :]
        return b""

    def _parse_again_without_upgrade(self) -> None:
        """Parse the header again without `Upgrade`, because with it the parser would not read a body."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        head = head_without_upgrade(version, method, self.url, self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        self.parser.feed_data(head)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field, but ignore trailers (RFC 9110 §6.5.1)."""
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the header and begin the request, unless it must be parsed again without `Upgrade`.

        Raises:
            InvalidRequest: as raised by `check_head`; the client gets a 400.
        """
        method = self.parser.get_method().decode("ascii")
        upgrade = self.parser.should_upgrade()
        if upgrade and method != "CONNECT":
            return
        version = self.parser.get_http_version()
        check_head(version, method, self.headers)
        if version == "1.0":  # an HTTP/1.0 client would take the 100 for the reply
            self.expect_100_continue = False
        super().on_headers_complete()
        self._in_body = True
        if self.expect_100_continue:  # the client may omit its body if refused, so the next bytes would be ambiguous
            self._kept_alive, self.cycle.keep_alive = self.cycle.keep_alive, False

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body."""
        self._restore_keep_alive()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request, unless its header must be parsed again."""
        if not self.parser.should_upgrade():
            self._restore_keep_alive()
            self._in_body = False
            super().on_message_complete()
            if not self.pipeline:  # uvicorn pauses reading in a large body, and would miss a disconnection
                self.flow.resume_reading()

    def _restore_keep_alive(self) -> None:
        if self._kept_alive is not None:
            if not self.cycle.response_started:
                self.cycle.keep_alive = self._kept_alive
            self._kept_alive = None

    def refuse(self, reason: str) -> None:
        """Answer the request being read with 400, after the earlier ones, and close the connection."""
        if self._refusal is not None:
            return
        self.logger.warning(reason)
        self._refusal = reason
        if not self._in_body:
            ahead = self.cycle is not None and not self.cycle.response_complete
        elif ahead := bool(self.pipeline):
            self.pipeline.popleft()  # the newest request, which is refused before it is started
        if not ahead:
            self._close_refused(reason)

    def _close_refused(self, reason: str) -> None:
        if self._in_body:
            if self.cycle.response_started:  # one request, one reply
                self.transport.close()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.send_400_response(reason)

    def end_abandoned_request(self) -> None:
        """End the connection of a client that has left, before the event loop calls `connection_lost`.

        Otherwise uvicorn logs an error for a request that ends without a response, and answers 500.
        """
        if not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def on_response_complete(self) -> None:
        """Start the next request after a reply, or send the pending refusal."""
        was_last = not self.pipeline
        super().on_response_complete()
        if was_last and self._refusal is not None and not self.transport.is_closing():
            self._close_refused(self._refusal)

    def _linger(self, transport: asyncio.Transport) -> bool:
        """If the client may still be sending, close only the sending side and ignore its data for `LINGER_S`."""
        if not (self._in_body or self._refusal is not None) or not transport.can_write_eof():
            return False
        self.flow.resume_reading()
        transport.write_eof()
        self.loop.call_later(LINGER_S, transport.abort)
        return True


class LingeringTransport(asyncio.Transport):
    """A transport whose `close` calls `linger`, which may keep the receiving side open for a while.

    A reply's header is sent together with its body if the body follows at once. If the process were killed between two
    sends, a proxy would already have begun to pass on the reply and could not retry on another server.

    Args:
        transport: the wrapped transport.
        linger: called by `close`; returns whether it keeps the transport open.
        call_soon: schedules a function, as the event loop's method does.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        linger: Callable[[asyncio.Transport], bool],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        super().__init__()
        self._transport, self._linger, self._call_soon = transport, linger, call_soon
        self._closing = False
        self._head: bytes | bytearray | memoryview = b""  # type: ignore[type-arg,unused-ignore]

    def write(self, data: bytes | bytearray | memoryview) -> None:  # type: ignore[type-arg,unused-ignore]
        """Send data, unless the transport is closed; a reply's header is held until the next write or iteration."""
        if self._closing:
            return
        if self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif data[:5] == b"HTTP/":
            self._head = data
            self._call_soon(self._send_head)
        else:
            self._transport.write(data)

    def _send_head(self) -> None:
        if self._head and not self._transport.is_closing():
            self._transport.write(self._head)
        self._head = b""

    def get_write_buffer_size(self) -> int:
        """Return the bytes of written data that the system has not taken yet."""
        return self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        """Return whether either side has closed the transport."""
        return self._closing or self._transport.is_closing()

    def close(self) -> None:
        """Send pending data, then close."""
        if self._closing:
            return
        self._closing = True
        self._send_head()
        if self._transport.is_closing() or not self._linger(self._transport):
            self._transport.close()

    def abort(self) -> None:
        """Close at once; pending data may be lost."""
        self._closing = True
        self._transport.abort()
