"""DNS look-ups in threads of their own, which block neither other work nor the exit of the process.

With a name server that does not answer, the system's resolver may take half a minute, and clients choose the names. In
the event loop's default executor a few such look-ups would block file writes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import BoundedSemaphore, Thread
from typing import Any

_MAX_CONCURRENT = 16
Lookup = Callable[[str, int, int], list[Any]]
"""A blocking function like `socket.getaddrinfo`, which takes host, port and family."""


class TooManyLookups(OSError):
    """The maximum number of look-ups is already running."""


class NameLookup:
    """Resolver of host names with the interface of `loop.getaddrinfo`; called on the event loop."""

    def __init__(self, lookup: Lookup | None = None, max_concurrent: int = _MAX_CONCURRENT) -> None:
        self._lookup = lookup or _getaddrinfo
        self._slots = BoundedSemaphore(max_concurrent)

    async def __call__(self, host: str, port: int, family: int) -> list[Any]:
        """Resolve a host name to addresses, as `socket.getaddrinfo` returns them.

        Raises:
            OSError: the name does not exist or cannot be resolved now, such as without a thread for it.
        """
        if not self._slots.acquire(blocking=False):
            raise TooManyLookups("too many DNS look-ups are running; try again later")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Any]] = loop.create_future()

        def settle(addresses: list[Any], error: OSError | None) -> None:
            if found.done():  # the caller was cancelled
                return
            if error is None:
                found.set_result(addresses)
            else:
                found.set_exception(error)

        def work() -> None:
            try:
                addresses, error = self._lookup(host, port, family), None
            except (OSError, UnicodeError) as failure:  # UnicodeError: an invalid label in the name
                addresses, error = [], failure if isinstance(failure, OSError) else OSError(str(failure))
            finally:
                self._slots.release()
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, addresses, error)

        try:
            Thread(target=work, name="names", daemon=True).start()
        except RuntimeError as error:
            self._slots.release()
            raise OSError(f"the server cannot start a thread ({error}); raise its limit of threads") from error
        return await found


def _getaddrinfo(host: str, port: int, family: int) -> list[Any]:
    return list(socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM))
