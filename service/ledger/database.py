"""An SQLite file that the processes of a host share, used on two threads: one writes, one reads.

It uses a write-ahead log: readers never wait for a writer, and writers wait for each other. A commit survives the
process, even `kill -9`. A power failure may lose the last commits, but does not damage the file (synchronous=NORMAL).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import structlog

from service.core.errors import NotReady
from service.ledger.connection import connect, not_usable, unavailable

_log = structlog.get_logger(__name__)
T = TypeVar("T")


class Database:
    """The ledger, a context manager; `write` and `read` are called on the event loop.

    Args:
        path: of the file.
        schemas: of the tables, as SQL statements.
        on_failed: called when the ledger cannot be used, on any thread.
        retry_s: pause of `write_until_done` before another try.
    """

    def __init__(
        self,
        path: Path,
        schemas: Sequence[str],
        on_failed: Callable[[], None] = lambda: None,
        *,
        retry_s: float = 1.0,
    ) -> None:
        self._path = path
        self._on_failed = on_failed
        self._schemas = schemas
        self._retry_s = retry_s
        self._writer = ThreadPoolExecutor(1, "ledger-write")
        self._reader = ThreadPoolExecutor(1, "ledger-read")
        self._writing: sqlite3.Connection
        self._reading: sqlite3.Connection

    def __enter__(self) -> Database:
        """Open the file, and create it and its tables if they are missing.

        Raises:
            SettingsInvalid: the file cannot be opened, or is not a ledger.
        """
        try:
            self._writing = connect(self._path)
            for schema in self._schemas:
                self._writing.executescript(schema)
            self._reading = connect(self._path)
        except sqlite3.Error as error:
            raise not_usable(self._path, error) from error
        return self

    def __exit__(self, *_: object) -> None:
        for thread in (self._writer, self._reader):
            thread.shutdown()
        self._reading.close()
        self._writing.close()

    def write(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run `work` in one transaction; transactions run in the order of the calls.

        Raises (the future):
            NotReady: code `ledger_unavailable`: the disk is full or failing; nothing was written.
        """
        return asyncio.get_running_loop().run_in_executor(self._writer, self._transact, work)

    async def write_until_done(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Like `write`, but retry until it succeeds, for changes that must not be lost."""
        while True:
            try:
                return await self.write(work)
            except NotReady as error:  # noqa: PERF203 -- the loop is for retries
                _log.warning("the ledger cannot be written; it is tried again", error=str(error))
                await asyncio.sleep(self._retry_s)

    def read(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run `work`, which only reads. Raises the errors of `write`."""
        return asyncio.get_running_loop().run_in_executor(self._reader, self._run_read, work)

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._writing as ledger:
                ledger.execute("BEGIN IMMEDIATE")
                return work(ledger)
        except sqlite3.Error as error:
            self._on_failed()
            raise unavailable(error) from error

    def _run_read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._reading)
        except sqlite3.Error as error:
            self._on_failed()
            raise unavailable(error) from error
