"""The ledger as an SQLite file that the processes of a host share.

It uses a write-ahead log: readers never wait for a writer, and writers wait for each other. A commit survives the
process, even `kill -9`. A power failure may lose the last commits, but does not damage the file (synchronous=NORMAL).
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from service.core.settings import SettingsInvalid
from service.ledger.contract import Connections, Transaction, unavailable

LEDGER_FILE = ".ledger.sqlite3"
_BUSY_TIMEOUT_S = 10.0
_PATIENCE_S = 5.0
_SWITCHED_AGAIN_S = 0.01
_MIB = 2**20
_OF_THE_DISK = ("disk is full", "disk I/O error")
"""Messages of SQLITE_FULL and SQLITE_IOERR; CPython has their codes only from 3.11 on."""
_OF_THE_USER = ("readonly database", "unable to open")
"""Messages of SQLITE_READONLY and SQLITE_CANTOPEN."""
T = TypeVar("T")


class _SqliteConnection(sqlite3.Connection):
    """A connection, which is its own transaction: `with` commits it."""

    skip_locked = ""  # one transaction writes at a time

    def notify(self, topic: str) -> None:
        """Do nothing: the processes of a host look for themselves."""


class SqliteFile(Connections):
    """A reading and a writing connection to the file.

    Args:
        path: of the file.
        schemas: of the tables, as SQL statements; a column that an older file lacks is added with ALTER TABLE.
        on_failed: called when the file cannot be used, on any thread.
    """

    def __init__(self, path: Path, schemas: Sequence[str] = (), on_failed: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self._schemas = schemas
        self._on_failed = on_failed
        self._read_lock, self._write_lock = threading.Lock(), threading.Lock()
        self._reading: _SqliteConnection
        self._writing: _SqliteConnection
        self._synced = False
        self._opened: list[tuple[threading.Lock, sqlite3.Connection]] = []

    def open(self) -> None:
        """See `Connections`; the file is created if it is missing."""
        try:
            self._writing = self._connect(self._write_lock)
            for schema in self._schemas:
                _create(self._writing, schema)
            self._reading = self._connect(self._read_lock)
        except sqlite3.Error as error:
            raise _not_usable(self.path, error) from error

    def close(self) -> None:
        """See `Connections`; a thread that hangs in the disk is not waited for."""
        for lock, connection in self._opened:
            if lock.acquire(timeout=_PATIENCE_S):
                connection.close()
                lock.release()

    def separate(self) -> SqliteFile:
        """See `Connections`."""
        return SqliteFile(self.path, (), self._on_failed)

    def read(self, work: Callable[[Transaction], T]) -> T:
        """See `Connections`."""
        try:
            with self._read_lock:
                return work(self._reading)
        except sqlite3.Error as error:
            self._on_failed()
            raise unavailable(error) from error

    def write(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        """See `Connections`."""
        try:
            with self._write_lock:
                if synced is not self._synced:
                    self._writing.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
                    self._synced = synced
                with self._writing as transaction:
                    transaction.execute("BEGIN IMMEDIATE")
                    return work(transaction)
        except sqlite3.Error as error:
            self._on_failed()
            raise unavailable(error) from error

    def _connect(self, lock: threading.Lock) -> _SqliteConnection:
        connection = sqlite3.connect(
            self.path,
            timeout=_BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=_SqliteConnection,
        )
        self._opened.append((lock, connection))
        connection.row_factory = sqlite3.Row
        _use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA journal_size_limit={16 * _MIB}")
        return connection


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch a new file to the write-ahead log, and fail if it may only be read, as SQLite opens such a file, too.

    SQLite waits for no other process that does it at the same moment.
    """
    patient_until = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA incremental_vacuum(1)")  # asks for the right to write, and writes nothing
        except sqlite3.OperationalError as error:  # noqa: PERF203 -- tried again until it works
            if "locked" not in str(error) or time.monotonic() > patient_until:
                raise
            time.sleep(_SWITCHED_AGAIN_S)
        else:
            return


def _create(connection: sqlite3.Connection, schema: str) -> None:
    """Create tables, columns and indexes that are missing."""
    for statement in schema.split(";"):
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:  # noqa: PERF203 -- SQLite has no IF NOT EXISTS for columns
            if "duplicate column name" not in str(error):
                raise


def _not_usable(path: Path, error: sqlite3.Error) -> SettingsInvalid:
    """The error for a ledger that cannot be opened; what to do depends on what is at fault."""
    way_out = "move it away to start with an empty one"
    if any(words in str(error) for words in _OF_THE_USER):
        way_out = "let the user of this server write that file and its folder, or " + way_out
    elif any(words in str(error) for words in _OF_THE_DISK):
        way_out = "make room on that disk, or mend it, and start again"
    elif "locked" in str(error):
        way_out = "another program writes to it and does not end: end that one, and start again"
    return SettingsInvalid(f"the ledger {path} cannot be used ({error}); {way_out}")
