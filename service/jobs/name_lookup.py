"""DNS look-ups in threads of their own, which block neither other work nor the exit of the process.

With a name server that does not answer, the system's resolver may take half a minute, and clients choose the names. In
the event loop's default executor a few such look-ups would block file writes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from threading import BoundedSemaphore
from typing import Any

from service.lifecycle.daemon_call import NoThread, call_in_daemon_thread

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
        try:
            return await call_in_daemon_thread(partial(self._look_up, host, port, family), "names")
        except NoThread:
            self._slots.release()
            raise

    def _look_up(self, host: str, port: int, family: int) -> list[Any]:
        try:
            return self._lookup(host, port, family)
        except UnicodeError as error:  # an invalid label in the name
            raise OSError(str(error)) from error
        finally:
            self._slots.release()


def _getaddrinfo(host: str, port: int, family: int) -> list[Any]:
    return list(socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM))
