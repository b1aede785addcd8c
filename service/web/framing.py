"""HTTP/1.1 message framing: where each request ends, and that each gets its own reply and no other.

What shares a connection, such as the clients of a proxy that pools connections, is kept apart by framing alone.
uvicorn's protocol leaves these gaps, which are closed here:

- An `Upgrade` that nobody serves ended the message before its body, and the body was read as the next request.
- Trailers became header fields, after the header had been checked.
- A request that could not be read was answered at once: before the requests ahead of it, or a second time.
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
"""How long a closed connection is still read from: closing it over unread bytes would destroy the reply on its way."""
_HOST = re.compile(rb"[\w.~!$&'()*+,;=%:\[\]-]*", re.ASCII)
_INVALID = "Invalid HTTP request received."

Headers = Iterable[tuple[bytes, bytes]]
"""Names in lower case, and values."""


def check_head(version: str, method: str, headers: Headers) -> None:
    """Whether everybody who reads this header finds the same host and the same end of the message (RFC 9112).

    Raises:
        InvalidRequest: it is for another version or a tunnel; `Host` or `Transfer-Encoding` are not what they must be.
    """
    if version not in ("1.0", "1.1"):
        raise InvalidRequest(f"HTTP/{version} is not served; send HTTP/1.1")
    if method == "CONNECT":
        raise InvalidRequest("CONNECT is not served: this is no proxy")
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise InvalidRequest(f"{len(hosts)} Host fields; send exactly one")
    if hosts and not _HOST.fullmatch(hosts[0]):
        raise InvalidRequest("the Host field is no host; send NAME or NAME:PORT")
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if codings and (version == "1.0" or [coding.strip().lower() for coding in codings] != [b"chunked"]):
        raise InvalidRequest("the only Transfer-Encoding that is served is 'chunked', with HTTP/1.1")


def head_without_upgrade(version: str, method: bytes, url: bytes, headers: Headers) -> bytes:
    """The same header as if nobody had asked for another protocol; a server may ignore that (RFC 9110 §7.8)."""
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
    """The header of the newest request is complete, and the request is not."""
    _kept_alive: bool | None = None
    """Whether the connection will be kept if the client sends the body that it asked leave for."""
    _refusal: str | None = None
    """Why nothing more is read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected."""
        super().connection_made(transport)
        self.transport = LingeringTransport(transport, self._linger)

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
            rest = self._fed(rest)

    def _fed(self, data: bytes | memoryview) -> bytes | memoryview:
        """What is left to be fed behind a header that had to be read again."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as reached:
            self._begin_again()
            return memoryview(data)[reached.args[0] :]
        return b""

    def _begin_again(self) -> None:
        """Read the header once more, without its `Upgrade`; the parser takes what follows one for another protocol."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        head = head_without_upgrade(version, method, self.url, self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        self.parser.feed_data(head)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header line is complete; a trailer is none (RFC 9110 §6.5.1)."""
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The header is complete, and the request begins unless it is read again without its `Upgrade`.

        Raises:
            InvalidRequest: as `check_head`; the client is answered 400.
        """
        method = self.parser.get_method().decode("ascii")
        upgrade = self.parser.should_upgrade()
        if upgrade and method != "CONNECT":
            return
        check_head(self.parser.get_http_version(), method, self.headers)
        super().on_headers_complete()
        self._in_body = True
        if self.expect_100_continue:  # refused now, the client may leave its body out, and what comes next is anything
            self._kept_alive, self.cycle.keep_alive = self.cycle.keep_alive, False

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_comes()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete, unless its header is read again."""
        if not self.parser.should_upgrade():
            self._body_comes()
            self._in_body = False
            super().on_message_complete()

    def _body_comes(self) -> None:
        if self._kept_alive is not None:
            if not self.cycle.response_started:
                self.cycle.keep_alive = self._kept_alive
            self._kept_alive = None

    def refuse(self, reason: str) -> None:
        """Answer the request that is being read with 400, after those before it, and close the connection."""
        if self._refusal is not None:
            return
        self.logger.warning(reason)
        self._refusal = reason
        if not self._in_body:
            ahead = self.cycle is not None and not self.cycle.response_complete
        elif ahead := bool(self.pipeline):
            self.pipeline.popleft()  # the newest; it is refused and not begun
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

    def on_response_complete(self) -> None:
        """A reply is sent; the next request begins, or is refused."""
        was_last = not self.pipeline
        super().on_response_complete()
        if was_last and self._refusal is not None and not self.transport.is_closing():
            self._close_refused(self._refusal)

    def _linger(self, transport: asyncio.Transport) -> bool:
        """Whether the client may still be sending; then what it sends is taken for a while, and ignored."""
        if not (self._in_body or self._refusal is not None) or not transport.can_write_eof():
            return False
        self.flow.resume_reading()
        transport.write_eof()
        self.loop.call_later(LINGER_S, transport.abort)
        return True


class LingeringTransport(asyncio.Transport):
    """A transport that is closed when its protocol allows it; until then only its writing side is."""

    def __init__(self, transport: asyncio.Transport, linger: Callable[[asyncio.Transport], bool]) -> None:
        super().__init__()
        self._transport, self._linger = transport, linger
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:  # type: ignore[type-arg,unused-ignore]
        """Send, unless it is closed."""
        if not self._closing:
            self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether it was closed, by whomever."""
        return self._closing or self._transport.is_closing()

    def close(self) -> None:
        """Send what is written, then close."""
        if self._closing:
            return
        self._closing = True
        if self._transport.is_closing() or not self._linger(self._transport):
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what is written may be lost."""
        self._closing = True
        self._transport.abort()
