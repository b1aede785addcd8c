"""Asynchronous access to the ledger: transactions run on threads, with separate pools for reading and for writing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from service.core.errors import NotReady
from service.ledger.contract import Connections, Transaction
from service.lifecycle.patient_threads import PatientThreads

_log = structlog.get_logger(__name__)
T = TypeVar("T")


class Database:
    """The ledger, as a context manager; `write` and `read` are called on the event loop.

    Args:
        connections: connections to the ledger; opened and closed here.
        retry_s: pause of `write_until_done` before another attempt, in seconds.
        ending: returns whether this process is about to end, and so cannot wait for the repair of the ledger.
    """

    def __init__(
        self, connections: Connections, *, retry_s: float = 1.0, ending: Callable[[], bool] = lambda: False
    ) -> None:
        self.connections = connections
        self._retry_s, self._ending = retry_s, ending
        self._writers = PatientThreads(connections.max_at_once, "ledger-write")
        self._readers = PatientThreads(connections.max_at_once, "ledger-read")

    def __enter__(self) -> Database:
        """Open the connections. Raises as `Connections.open` does."""
        self.connections.open()
        return self

    def __exit__(self, *_: object) -> None:
        for threads in (self._writers, self._readers):
            threads.shutdown()
        self.connections.close()

    def write(self, work: Callable[[Transaction], T]) -> asyncio.Future[T]:
        """Run `work` in one transaction. With SQLite, transactions run in the order of the calls.

        Raises (the future):
            NotReady: as raised by `Connections.write`.
        """
        return asyncio.get_running_loop().run_in_executor(self._writers, self.connections.write, work)

    async def write_until_done(self, work: Callable[[Transaction], T]) -> T:
        """Like `write`, but retry until it succeeds, for changes that must not be lost.

        Raises:
            NotReady: the ledger needs repair (`Connections.refusal`), and this process is about to end. Other processes
                repeat the work that it did not record.
        """
        while True:
            try:
                return await self.write(work)
            except NotReady as error:  # noqa: PERF203 -- the loop is for retries
                if self.connections.refusal and self._ending():
                    _log.error(
                        "the ledger needs repair, and the server is shutting down: a change was not recorded",
                        error=str(error),
                    )
                    raise
                _log.warning("the ledger cannot be written; retrying", error=str(error))
                await asyncio.sleep(self._retry_s)

    def read(self, work: Callable[[Transaction], T]) -> asyncio.Future[T]:
        """Run `work`, which only reads. Raises the errors of `Connections.read`."""
        return asyncio.get_running_loop().run_in_executor(self._readers, self.connections.read, work)
