"""Messages between two processes over a Unix socket; each side notices at once when the other ends.

A frame is a length (four bytes, little-endian) and a msgpack array of all messages sent in one iteration of the event
loop.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import cast

import structlog

from service.processes.shared.messages import Hello, Message, decode_all, encode

_log = structlog.get_logger(__name__)

_LENGTH = struct.Struct("<I")
_HELLO_BYTES = 256
"""Size limit of a greeting, after which a front end sends nothing until it is answered."""
_HELLO_TIMEOUT_S = 5.0


class Channel(asyncio.Protocol):
    """One end of the connection. Used on the event loop only.

    Args:
        received: called with every message, in order.
        lost: called once, when the other side has ended or has sent malformed data.
    """

    def __init__(self, received: Callable[[Message], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._outbox: list[Message] = []
        self._closed = False

    def send(self, message: Message) -> None:
        """Send a message at the end of this iteration of the event loop; it is dropped if the channel is lost."""
        if self._closed:
            return
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(message)

    def close(self) -> None:
        """Send the queued messages and close the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport; called by asyncio."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Decode the complete frames received so far; called by asyncio."""
        self._buffer += data
        at = 0
        while len(self._buffer) >= at + _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, at)
            end = at + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            for message in decode_all(memoryview(self._buffer)[at + _LENGTH.size : end]):
                self._received(message)
            at = end
        del self._buffer[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection; called by asyncio."""
        if not self._closed:
            self._closed = True
            if exc is not None:
                _log.warning("channel broke", reason=str(exc))
            self._lost()

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, []
        if outbox and self._transport is not None and not self._closed:
            body = encode(outbox)
            self._transport.write(_LENGTH.pack(len(body)) + body)


def greet(path: Path, hello: Hello, slots_fd: int) -> socket.socket:
    """Connect to an engine process and pass it the descriptor of the slots; blocks only briefly.

    Raises:
        OSError: no process listens on the socket.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(os.fspath(path))
        socket.send_fds(connection, [encode(hello)], [slots_fd])
    except BaseException:
        connection.close()
        raise
    connection.setblocking(False)
    return connection


def receive_greeting(connection: socket.socket) -> tuple[Hello, int]:
    """Wait for the first message of a front end, and the descriptor of its slots. Blocks.

    Raises:
        OSError: no greeting came in time, or the message is not a valid greeting.
    """
    connection.settimeout(_HELLO_TIMEOUT_S)
    data, descriptors, _, _ = socket.recv_fds(connection, _HELLO_BYTES, 1)
    connection.setblocking(False)
    try:
        (hello,) = decode_all(b"\x91" + data)
    except ValueError as error:
        hello = None
        reason = str(error)
    else:
        reason = "it carried no file descriptor of the slots' memory"
    if not isinstance(hello, Hello) or len(descriptors) != 1:
        for descriptor in descriptors:
            os.close(descriptor)
        raise OSError(f"invalid greeting of a front end: {reason}")
    return hello, descriptors[0]
