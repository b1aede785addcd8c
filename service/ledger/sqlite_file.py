"""The ledger as an SQLite file that the processes of a host share.

It uses a write-ahead log: readers never wait for a writer, and writers wait for each other. A commit survives even
`kill -9` of the process. A power failure may lose the last commits but does not damage the file (synchronous=NORMAL).
If the file is moved or removed while in use, the file that is then at its path is used, or a new one is created. No
file is used while the earlier one's log or shared memory is still beside the path, because SQLite would take them for
the new file's. A file that was overwritten in place is not used either.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import structlog

from service.core.errors import NotReady
from service.ledger.contract import Connections, Transaction, unavailable
from service.ledger.overwriting import OverwriteWatch
from service.ledger.reserved_space import ReservedSpace
from service.ledger.sqlite_refusals import LedgerLogMissing, LedgerOverwritten, LedgerRefused, is_disk_error, not_usable
from service.ledger.sqlite_tables import create, use_write_ahead_log

_log = structlog.get_logger(__name__)
LEDGER_FILE = ".ledger.sqlite3"
_RESERVE_FILE = ".ledger.reserve"
_BUSY_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 5.0
_MIB = 2**20
_SIDE_FILE_SUFFIXES = ("-wal", "-shm")
"""Suffixes of SQLite's files beside the ledger: the write-ahead log and the shared memory."""
_FileId = tuple[int, int]
T = TypeVar("T")


class _SqliteConnection(sqlite3.Connection):
    """A connection that also serves as its transaction: `with` commits it."""

    skip_locked = ""  # one transaction writes at a time

    def notify(self, topic: str) -> None:
        """Do nothing: the processes of one host poll."""


class SqliteFile(Connections):
    """A reading and a writing connection to the file.

    Args:
        path: path of the file.
        schemas: SQL that creates the tables; a column that an older file lacks is added with ALTER TABLE.
        on_failed: called when the file cannot be used, on any thread.
        on_replaced: called before a file that replaced the first one is used, on any thread; may raise OSError.
    """

    def __init__(
        self,
        path: Path,
        schemas: Sequence[str] = (),
        on_failed: Callable[[], None] = lambda: None,
        on_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self._schemas = schemas
        self._on_failed = on_failed
        self._on_replaced = on_replaced
        self._watch = watch = OverwriteWatch(path)
        self._reading, self._writing = _OpenFile(path, schemas, watch), _OpenFile(path, schemas, watch)
        self._reserve = ReservedSpace(path.with_name(_RESERVE_FILE))
        self._closed = False

    def open(self) -> None:
        """See `Connections`; the file is created if it is missing."""
        self._closed = False
        try:
            self._writing.open()
            self._reading.open()
        except sqlite3.Error as error:
            raise not_usable(self.path, error) from error

    def close(self) -> None:
        """See `Connections`; waits only briefly for a thread that hangs in a disk access."""
        self._closed = True
        for file in (self._writing, self._reading):
            if file.lock.acquire(timeout=_CLOSE_TIMEOUT_S):
                with suppress(OSError):  # renaming them is a precaution
                    file.set_aside()
                file.close()
                file.lock.release()

    def separate(self) -> SqliteFile:
        """See `Connections`."""
        return SqliteFile(self.path, self._schemas, self._on_failed, self._on_replaced)

    def read(self, work: Callable[[Transaction], T]) -> T:
        """See `Connections`."""
        try:
            with self._reading.lock:
                self._follow(self._reading)
                return work(self._reading.connection)
        except sqlite3.Error as error:
            self._on_failed()
            raise unavailable(error) from error

    def write(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        """See `Connections`."""
        try:
            with self._writing.lock:
                self._follow(self._writing)
                self._writing.sync_commits(synced)
                with self._writing.connection as transaction:
                    transaction.execute("BEGIN IMMEDIATE")
                    self._watch.raise_version(transaction)
                    return work(transaction)
        except sqlite3.Error as error:
            self._on_failed()
            raise unavailable(error) from error

    def write_removal(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        """See `Connections`."""
        if not self._reserve.is_held:
            self._checkpoint()
        try:
            return self.write(work, synced=synced)
        except NotReady as error:
            if not is_disk_error(error.__cause__):
                raise
        self._reserve.release()
        self._checkpoint()
        return self.write(work, synced=synced)

    def restore_reserve(self) -> None:
        """See `Connections`; while the disk has little room, the log is kept empty, too."""
        self._reserve.restore()
        if self._reserve.is_disk_low():
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Move the log's transactions to the file, if it has room to grow; the next ones reuse the log's space."""
        with suppress(sqlite3.Error, OSError), self._writing.lock:
            if not self._writing.is_at_its_path or self._watch.is_overwritten():
                return  # its log does not belong to the file at the path
            pages = "SELECT page_count * page_size AS bytes FROM pragma_page_count, pragma_page_size"
            ((size,),) = self._writing.connection.execute(pages).fetchall()
            if self._reserve.has_room(size - self.path.stat().st_size):  # a part of it would take room for nothing
                self._writing.connection.execute("PRAGMA wal_checkpoint").fetchall()

    def _follow(self, file: _OpenFile) -> None:
        """Connect to the file at the path if it is no longer the connected one. Raises sqlite3.Error or NotReady."""
        if self._closed:
            raise sqlite3.ProgrammingError("the ledger is closed")
        try:
            if file.is_at_its_path:
                if self._watch.is_overwritten():
                    raise LedgerOverwritten(self.path)
                self.refusal = ""
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._on_replaced()
            file.open()
        except OSError as error:
            self._on_failed()
            raise unavailable(error.strerror or error) from error
        except LedgerRefused as error:
            if not self.refusal:
                _log.error("the ledger is not used", reason=f"{error}; {error.remedy}", path=str(self.path))
            self.refusal = f"{error}; {error.remedy}"
            raise
        self.refusal = ""
        if file is self._writing:
            _log.warning("the ledger was moved or removed; using the file that is now at its path", path=str(self.path))


class _OpenFile:
    """A connection to the file, and the file's identity. Callers hold `lock`, after `open`."""

    def __init__(self, path: Path, schemas: Sequence[str], watch: OverwriteWatch) -> None:
        self.lock = threading.Lock()
        self._watch = watch
        self.connection: _SqliteConnection
        self._path = path
        self._schemas = schemas
        self._file: _FileId | None = None
        self._side_files: set[_FileId] = set()
        self._synced = False

    @property
    def is_at_its_path(self) -> bool:
        """Whether the connected file is still at the path. Raises OSError if the path cannot be read."""
        return self._file is not None and self._file == _file_at(self._path)

    def open(self) -> None:
        """Connect to the file at the path; the file and its tables are created if they are missing.

        Raises:
            OSError: the files there cannot be read.
            sqlite3.Error: the file cannot be used.
        """
        is_new = self._refuse_foreign_side_files()
        self.close()
        self.connection = _connect(self._path, is_new)
        opened = _file_at(self._path)
        use_write_ahead_log(self.connection, _BUSY_TIMEOUT_S)
        self.connection.execute("PRAGMA synchronous=NORMAL")
        self.connection.execute(f"PRAGMA journal_size_limit={16 * _MIB}")
        for schema in self._schemas:
            create(self.connection, schema)
        side_files = {found for path in self._side_file_paths() if (found := _file_at(path))}
        if opened is None or opened != _file_at(self._path):  # the log beside it may be another file's
            self.connection.close()
            raise sqlite3.OperationalError("it was moved while it was being opened")
        self._watch.begin()
        self._file, self._side_files, self._synced = opened, side_files, False

    def _refuse_foreign_side_files(self) -> bool:
        """Refuse the path while a lost file's log or shared memory is there; return whether the path has no file.

        The log and the shared memory are not removed: the log may hold the only copy of some data, other processes may
        still use both, and a program may be moving or removing the files one after another.

        Raises:
            OSError: the files there cannot be read.
            LedgerLogMissing: a lost file's log or shared memory is there.
        """
        side_files = [path for path in self._side_file_paths() if os.access(path, os.F_OK)]
        is_new = not os.access(self._path, os.F_OK)  # checked last, because SQLite creates this file first
        left = side_files if is_new else [path for path in side_files if _file_at(path) in self._side_files]
        if left and (is_new or not self.is_at_its_path):
            raise LedgerLogMissing(left)
        return is_new

    def set_aside(self) -> None:
        """Rename this file's log and shared memory if another file is now at the path: a start would misuse them.

        Raises:
            OSError: they cannot be renamed.
        """
        if os.access(self._path, os.F_OK) and not self.is_at_its_path:
            for path in self._side_file_paths():
                if (left := _file_at(path)) and left in self._side_files:
                    path.rename(f"{path}.of-{left[1]}")

    def _side_file_paths(self) -> list[Path]:
        """Return the paths of the log and the shared memory; SQLite puts them beside a symbolic link's target."""
        return [Path(f"{os.path.realpath(self._path)}{end}") for end in _SIDE_FILE_SUFFIXES]

    def close(self) -> None:
        """Close the connection. SQLite does not change a file that was moved, or its log."""
        if self._file is not None:
            self._watch.leave()
        self._file, self._side_files = None, set()
        if hasattr(self, "connection"):
            self.connection.close()

    def sync_commits(self, synced: bool) -> None:
        """Set whether a commit waits until it would survive a power failure."""
        if synced is not self._synced:
            self.connection.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
            self._synced = synced


def _connect(path: Path, is_new: bool) -> _SqliteConnection:
    """Open the file; create it only if `is_new`, as a file that is just being moved may have left its log there."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'rwc' if is_new else 'rw'}",
        uri=True,
        timeout=_BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=_SqliteConnection,
    )
    connection.row_factory = sqlite3.Row
    return connection


def _file_at(path: Path) -> _FileId | None:
    """Return the device and the inode of a file; None if there is none. Raises OSError if they cannot be read."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
