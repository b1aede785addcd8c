"""Whether the client of a request still waits for the answer."""

from __future__ import annotations

import asyncio
import select

_HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""Linux names a connection whose other side has ended; elsewhere only a broken one is seen early."""


class ClientPresence:
    """The client at the other end of a connection.

    The event loop reads its sockets only when everything that is ready has run. After a burst that is many requests
    later, so what asks here is told by the kernel at once, for half a microsecond.

    Args:
        gone: a future that is done once the event loop has seen the client disconnect.
        descriptor: the connection's socket; None if it has none that could be asked.
    """

    def __init__(self, gone: asyncio.Future[None], descriptor: int | None = None) -> None:
        self.gone = gone
        self._hang_ups: select.poll | None = None
        if descriptor is not None:
            self._hang_ups = select.poll()
            self._hang_ups.register(descriptor, _HUNG_UP)

    def has_left(self) -> bool:
        """Return whether the client has disconnected, also if the event loop has not seen it yet."""
        return self.gone.done() or (self._hang_ups is not None and bool(self._hang_ups.poll(0)))
