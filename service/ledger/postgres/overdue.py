"""Closes connections on which the database does not answer: its kernel answers keepalives even if its host hangs.

The database ends slow statements earlier (`statement_timeout`), so only connections to a hung one are closed. Time in
which this process itself was paused does not count.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

_CHECK_INTERVAL_S = 0.5
_PAUSE_S = 2.0
"""If this many seconds pass between two checks, the process was paused between them."""


class OverdueWatch:
    """A thread that closes connections in use for longer than `limit_s` seconds. Thread-safe.

    Args:
        limit_s: longest time of one transaction, in seconds.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float]) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[psycopg.Connection[Any], float] = {}
        self._closed: set[psycopg.Connection[Any]] = set()
        self._checked_at: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._check_until_closed, name="ledger-overdue", daemon=True)

    def start(self) -> None:
        self._checked_at = self._clock()  # or a pause before the first check would count
        self._thread.start()

    def close(self) -> None:
        """End the thread. May be called twice, and without `start`."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    @contextmanager
    def over(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Watch a connection while the block runs.

        Raises:
            ConnectionHung: the connection was closed because it was overdue.
        """
        with self._lock:
            self._since[connection] = self._clock()
        try:
            yield
        finally:
            with self._lock:
                del self._since[connection]
                closed = connection in self._closed
                self._closed.discard(connection)
            if closed:
                raise ConnectionHung(f"the database has not answered for {self._limit_s:.0f} s")

    def check(self) -> None:
        """Close the connections that are overdue now; called twice a second."""
        with self._lock:  # held throughout, so that a block that ends meanwhile cannot close its socket yet
            now = self._clock()
            paused_s = now - (now if self._checked_at is None else self._checked_at)
            self._checked_at = now
            if paused_s > _PAUSE_S:
                self._since = {connection: since + paused_s for connection, since in self._since.items()}
            for connection, since in self._since.items():
                if now - since > self._limit_s and connection not in self._closed:
                    self._closed.add(connection)
                    _shut_down(connection)

    def _check_until_closed(self) -> None:
        while not self._ended.wait(_CHECK_INTERVAL_S):
            self.check()


class ConnectionHung(psycopg.OperationalError):
    """The connection was closed because the database did not answer."""


def _shut_down(connection: psycopg.Connection[Any]) -> None:
    """Shut down a connection's socket, so that the thread that waits on it gets an error."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.pgconn.socket)) as shared:
        shared.shutdown(socket.SHUT_RDWR)
