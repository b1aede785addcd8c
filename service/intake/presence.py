"""Whether the client of a request still waits for the answer."""

from __future__ import annotations

import asyncio
import ctypes
import select
from collections.abc import Callable
from functools import cache

from service.core.errors import Cancelled

_HUNG_UP: int | None = getattr(select, "POLLRDHUP", None)
"""Linux's name for a connection whose other side has ended; None on other systems, where the kernel is not asked."""


class _PollEntry(ctypes.Structure):
    """`struct pollfd` of poll(2)."""

    _fields_ = (("descriptor", ctypes.c_int), ("wanted", ctypes.c_short), ("seen", ctypes.c_short))


@cache
def _libc() -> ctypes.PyDLL:
    """The C library, called without releasing the interpreter's lock, which `select.poll` does at each call."""
    return ctypes.PyDLL(None)


class ClientPresence:
    """The client at the other end of a connection.

    The event loop reads its sockets only when everything that is ready has run. After a burst that is many requests
    later, so this asks the kernel, in less than a microsecond.

    Args:
        gone: a future that is done once the event loop has seen the client disconnect.
        descriptor: the connection's socket; None if it has none that could be asked.
        end: called when the kernel says that the client has disconnected, maybe more than once. It ends the
            connection, so that the server treats a request that stops for it as one whose client it saw leave.
    """

    def __init__(
        self, gone: asyncio.Future[None], descriptor: int | None = None, end: Callable[[], None] = lambda: None
    ) -> None:
        self.gone, self._end = gone, end
        asked = descriptor is not None and _HUNG_UP is not None
        self._entry = ctypes.pointer(_PollEntry(descriptor, _HUNG_UP, 0)) if asked else None

    def has_left(self) -> bool:
        """Return whether the client has disconnected, also if the event loop has not seen it yet."""
        if self.gone.done():
            return True
        left = self._entry is not None and _libc().poll(self._entry, 1, 0) > 0
        if left:
            self._end()
        return left

    def stop_if_left(self) -> None:
        """Stop what the client has asked for.

        Raises:
            Cancelled: it has disconnected.
        """
        if self.has_left():
            raise Cancelled("the client left")
