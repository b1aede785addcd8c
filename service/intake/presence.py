"""Detects that the client of a request has disconnected and no longer waits for the answer."""

from __future__ import annotations

import asyncio
import ctypes
import select
from collections.abc import Callable
from functools import cache

from service.core.errors import Cancelled

_HUNG_UP: int | None = getattr(select, "POLLRDHUP", None)
"""Event of poll(2) on Linux: the peer has closed the connection; None on other systems, where it is not polled."""


class _PollEntry(ctypes.Structure):
    """`struct pollfd` of poll(2)."""

    _fields_ = (("descriptor", ctypes.c_int), ("wanted", ctypes.c_short), ("seen", ctypes.c_short))


@cache
def _libc() -> ctypes.PyDLL:
    """The C library, called without releasing the GIL, which `select.poll` does at each call."""
    return ctypes.PyDLL(None)


class ClientPresence:
    """The client at the other end of a connection.

    The event loop polls its sockets only when all ready callbacks have run: after a burst, many requests later. So this
    class asks the kernel, which takes less than a microsecond.

    Args:
        disconnected: a future that is done once the event loop has seen the client disconnect.
        descriptor: the connection's socket; None if it has none that could be asked.
        end: called, maybe more than once, when the kernel says that the client has disconnected. It ends the
            connection, so that the server handles the request as if the event loop had seen the disconnect.
    """

    def __init__(
        self, disconnected: asyncio.Future[None], descriptor: int | None = None, end: Callable[[], None] = lambda: None
    ) -> None:
        self.disconnected, self._end = disconnected, end
        asked = descriptor is not None and _HUNG_UP is not None
        self._entry = ctypes.pointer(_PollEntry(descriptor, _HUNG_UP, 0)) if asked else None

    def has_disconnected(self) -> bool:
        """Return whether the client has disconnected, also if the event loop has not seen it yet."""
        if self.disconnected.done():
            return True
        left = self._entry is not None and _libc().poll(self._entry, 1, 0) > 0
        if left:
            self._end()
        return left

    def raise_if_disconnected(self) -> None:
        """Stop the request if its client has left.

        Raises:
            Cancelled: the client has disconnected.
        """
        if self.has_disconnected():
            raise Cancelled("the client disconnected")
