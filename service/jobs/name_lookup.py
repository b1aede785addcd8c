"""Host names to addresses, off the event loop, in threads that hold up nobody else's work nor the end of the process.

The system's resolver may take half a minute over a name whose server does not answer, and clients choose the names: in
the event loop's own threads a few of them would keep files from being written.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import BoundedSemaphore, Thread
from typing import Any

_MOST_AT_ONCE = 16
Lookup = Callable[[str, int, int], list[Any]]
"""As `socket.getaddrinfo`: host, port, family. Blocks."""


class TooManyLookups(OSError):
    """So many names are being looked up that another one would have to wait."""


class Names:
    """Called on the event loop, as `loop.getaddrinfo` is."""

    def __init__(self, lookup: Lookup | None = None, most_at_once: int = _MOST_AT_ONCE) -> None:
        self._lookup = lookup or _getaddrinfo
        self._places = BoundedSemaphore(most_at_once)

    async def __call__(self, host: str, port: int, family: int) -> list[Any]:
        """What the resolver finds.

        Raises:
            OSError: there is nothing of that name, or it cannot be looked up now.
        """
        if not self._places.acquire(blocking=False):
            raise TooManyLookups("too many names are being looked up")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Any]] = loop.create_future()

        def settle(addresses: list[Any], error: OSError | None) -> None:
            if found.done():  # nobody waits for it any more
                return
            if error is None:
                found.set_result(addresses)
            else:
                found.set_exception(error)

        def work() -> None:
            try:
                addresses, error = self._lookup(host, port, family), None
            except (OSError, UnicodeError) as failure:  # the latter: a label that no name may have
                addresses, error = [], failure if isinstance(failure, OSError) else OSError(str(failure))
            finally:
                self._places.release()
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(settle, addresses, error)

        Thread(target=work, name="names", daemon=True).start()
        return await found


def _getaddrinfo(host: str, port: int, family: int) -> list[Any]:
    return list(socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM))
