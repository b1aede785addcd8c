"""HTTP/1.1 protocol with limits for each connection, so that no client takes memory or a connection for ever."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from service.intake.presence import ClientPresence
from service.web.connection.framing import FramedHttp

MAX_HEADER_BYTES = 64 * 1024
"""Limit of a request's header, all lines together; a larger one is answered 400 and the connection closed."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of a connection; a client that exceeds one is disconnected."""

    header_timeout_s: float = 20.0
    """Time limit for a complete header; keep-alive has its own limit."""
    max_ignored_bytes: int = 16 * 2**20
    """Limit of a body that was refused before it was read."""
    ignored_body_timeout_s: float = 30.0
    """Time limit for such a body after its refusal."""
    write_timeout_s: float = 60.0
    """Time between checks of an unread response: it must have been read, except what fits into the system's send
    buffer, or be read at `min_read_rate`."""
    min_read_rate: float = 16 * 2**10
    """Least rate at which a response must leave this process, in bytes per second. The system takes it in steps of up
    to a third of its send buffer, so a client that reads at twice this rate is never too slow."""
    max_unread_bytes: int = 256 * 2**20
    """Limit of the unread responses of all connections, above which every response must have been read when checked."""


@dataclass(slots=True)
class UnreadResponses:
    """The responses that the clients of a server have not read; used on its event loop only."""

    nbytes: int = 0
    """Number of bytes that the system had not taken when writing was paused; they are kept until the last was read."""


class LimitedHttp(FramedHttp):
    """HTTP/1.1 protocol with limits for each connection; uvicorn's own would buffer a header of any size."""

    _header_timer: asyncio.TimerHandle | None = None
    """Timer that runs while a header is awaited."""
    _awaits_header = False
    """Whether a header has begun but not ended; if it does not end in the same data, its timer starts."""
    _write_timer: asyncio.TimerHandle | None = None
    """Timer that runs while the client has not read the response."""
    _unread_bytes = 0
    """Bytes of the response that were unread when writing was paused."""
    _ignored_timer: asyncio.TimerHandle | None = None
    """Timer that runs while the rest of the body of an already answered request is awaited."""
    _ignored_bytes = 0
    """Bytes of that body received since the answer."""
    _unparsed_bytes = 0
    """Bytes received since the last parsed line or piece of a body, such as of an unfinished header line."""
    _parsed_bytes = 0
    """Bytes of the lines of this request's header parsed so far, without the first line."""
    _presence: ClientPresence
    """Says whether the client has disconnected; also in `request.state.presence`."""

    def __init__(self, *uvicorns: Any, limits: ConnectionLimits, unread: UnreadResponses, **named: Any) -> None:
        super().__init__(*uvicorns, **named)
        self._limits, self._all_unread = limits, unread

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the header timer for a new connection."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        descriptor = connection.fileno() if connection else None
        self._presence = ClientPresence(self.loop.create_future(), descriptor, self.end_abandoned_request)
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers and signal the disconnect."""
        self._stop_header_timer()
        self._stop_write_timer()
        self._stop_ignored_body_timer()
        self._presence.disconnected.set_result(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; refuse the request if a header line exceeds the limit."""
        self._unparsed_bytes += len(data)
        self._awaits_header |= self.timeout_keep_alive_task is not None  # any data, even an empty line, ends that timer
        super().data_received(data)
        if self._awaits_header:
            self._start_header_timer()
        if self._unparsed_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.refuse(f"The header is larger than {MAX_HEADER_BYTES} bytes.")

    def on_message_begin(self) -> None:
        """Reset the counters and await the header of a new request."""
        super().on_message_begin()
        self._parsed_bytes = self._ignored_bytes = 0
        self._awaits_header = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a complete header line; a header over the limit makes the request invalid (400)."""
        self._unparsed_bytes = 0
        self._parsed_bytes += len(name) + len(value) + len(b": \r\n")
        if len(self.url) + self._parsed_bytes > MAX_HEADER_BYTES:
            raise ValueError(f"the header is larger than {MAX_HEADER_BYTES} bytes")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the header timer; the body follows."""
        self._unparsed_bytes, self._awaits_header = 0, False
        self._stop_header_timer()
        self.scope["state"]["presence"] = self._presence
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body, which has a limit of its own (form.py)."""
        self._unparsed_bytes = 0
        if self.cycle.response_complete:  # answered early: read on, so that the client gets the answer
            self._ignored_bytes += len(body)
            if self._ignored_bytes > self._limits.max_ignored_bytes:
                self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer for an ignored body, as the request is complete."""
        self._stop_ignored_body_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the timer for an ignored body if the response was sent before the body arrived."""
        super().on_response_complete()
        if self._in_body and self.cycle.response_complete and not self.transport.is_closing():
            self._ignored_timer = self.loop.call_later(self._limits.ignored_body_timeout_s, self.transport.abort)

    def pause_writing(self) -> None:
        """Start the write timer, as the client reads more slowly than the server sends."""
        super().pause_writing()
        if self._write_timer is None:
            self._unread_bytes = self.transport.get_write_buffer_size()
            self._all_unread.nbytes += self._unread_bytes
            self._start_write_timer(self._unread_bytes)

    def resume_writing(self) -> None:
        """Stop the write timer, as the client has read most of the response."""
        self._stop_write_timer()
        super().resume_writing()

    def _start_header_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self._limits.header_timeout_s, self.transport.abort)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_ignored_body_timer(self) -> None:
        if self._ignored_timer is not None:
            self._ignored_timer.cancel()
            self._ignored_timer = None

    def _start_write_timer(self, unread_bytes: int) -> None:
        self._write_timer = self.loop.call_later(self._limits.write_timeout_s, self._check_reading, unread_bytes)

    def _check_reading(self, earlier_bytes: int) -> None:
        """Disconnect a client that reads too slowly, given the bytes that were unread when the timer was started.

        Another response that waits on the same connection is in memory, too, and is not counted.
        """
        limits, unread_bytes = self._limits, self.transport.get_write_buffer_size()
        is_slow = earlier_bytes - unread_bytes < limits.min_read_rate * limits.write_timeout_s
        another_waits = not self.cycle.response_complete
        if is_slow or another_waits or self._all_unread.nbytes > limits.max_unread_bytes:
            self.transport.abort()
        else:
            self._start_write_timer(unread_bytes)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
            self._all_unread.nbytes -= self._unread_bytes
