"""The index of results: who owns each, and which are deleted; shared by all processes of a results folder.

Every thread that stores a copy of a result asks it before and after, so that a deleted result is never stored again
for longer than that moment: a tombstone is committed before the first copy is removed.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import structlog

from service.ledger.connection import connect, not_usable, unavailable
from service.saving import index_table
from service.saving.index_table import ResultRow, row_of

_log = structlog.get_logger(__name__)
T = TypeVar("T")
_PATIENCE_S = 5.0


class ResultIndex:
    """The table of results in the ledger. Thread-safe; all methods but `announce` block.

    A thread that reads does not wait for one that writes.

    Args:
        path: the ledger's file.
        now: wall clock, in seconds since the epoch.
    """

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._read_lock, self._write_lock = threading.Lock(), threading.Lock()
        self._reading: sqlite3.Connection
        self._writing: sqlite3.Connection
        self._opened: list[tuple[threading.Lock, sqlite3.Connection]] = []
        self._lock = threading.Lock()  # guards `_unwritten`
        self._unwritten: dict[str, tuple[Mapping[str, Any], bool]] = {}
        """Sidecars of results that are not in the table yet, and whether they are saved."""

    def open(self) -> None:
        """Open the ledger.

        Raises:
            SettingsInvalid: it cannot be opened, or is no ledger.
        """
        try:
            self._writing = connect(self._path)
            self._opened.append((self._write_lock, self._writing))
            self._writing.executescript(index_table.SCHEMA)
            self._reading = connect(self._path)
            self._opened.append((self._read_lock, self._reading))
        except sqlite3.Error as error:
            raise not_usable(self._path, error) from error

    def close(self) -> None:
        """Close the connections. May be called twice."""
        for lock, connection in self._opened:
            if lock.acquire(timeout=_PATIENCE_S):  # with a timeout, because a thread may hang in the disk
                connection.close()
                lock.release()

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self._path

    @property
    def pending(self) -> bool:
        """Whether `flush` has something to write."""
        return bool(self._unwritten)

    def announce(self, sidecar: Mapping[str, Any]) -> None:
        """Note a result that was spooled; it is entered by `flush`, or when it is saved."""
        with self._lock:
            self._unwritten.setdefault(sidecar["id"], (sidecar, False))

    def saved(self, sidecars: Sequence[Mapping[str, Any]]) -> None:
        """Enter results that are durable. If the ledger rejects them, a later `flush` tries again."""
        with self._lock:
            self._unwritten.update((sidecar["id"], (sidecar, True)) for sidecar in sidecars)
        if sidecars:
            self.flush()

    def flush(self) -> None:
        """Enter the results that are not in the table yet; a failure is logged, and the next call tries again."""
        with self._write_lock:
            with self._lock:
                taken, self._unwritten = self._unwritten, {}
            if not taken:
                return
            try:
                with self._transaction() as ledger:
                    index_table.enter(ledger, [row_of(sidecar, saved=saved) for sidecar, saved in taken.values()])
            except sqlite3.Error as error:
                with self._lock:
                    self._unwritten = {**taken, **self._unwritten}
                _log.warning("results are not listed yet; it is tried again", error=str(error), results=len(taken))

    def bury(self, result_id: str, owner: str) -> bool:
        """Commit and sync the tombstone of a result; False if it was deleted before.

        Raises:
            NotReady: code `ledger_unavailable`: the disk is full or failing; nothing was deleted.
        """
        now = self._now()

        def work(ledger: sqlite3.Connection) -> bool:
            return index_table.bury(ledger, result_id, owner, now)

        return self.write(work, synced=True)

    def deleted(self, result_ids: Collection[str]) -> set[str]:
        """Return those of the results that are deleted.

        Raises:
            NotReady: code `ledger_unavailable`: it cannot be told now.
        """
        return self.read(lambda ledger: index_table.deleted(ledger, result_ids)) if result_ids else set()

    def find(self, result_id: str) -> ResultRow | None:
        """Return what is known of a result, deleted or not; None if there is no row. Raises as `deleted`."""
        return self.read(lambda ledger: index_table.find(ledger, result_id))

    def forget(self, result_ids: Collection[str]) -> None:
        """Remove the rows of results that no longer exist; tombstones stay. Raises as `bury`."""
        self.write(lambda ledger: index_table.forget(ledger, result_ids))

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work`, which only reads. Raises as `deleted`."""
        try:
            with self._read_lock:
                return work(self._reading)
        except sqlite3.Error as error:
            raise unavailable(error) from error

    def write(self, work: Callable[[sqlite3.Connection], T], *, synced: bool = False) -> T:
        """Run `work` in one transaction; `synced`: wait until it survives a power failure, too. Raises as `bury`."""
        try:
            with self._write_lock, self._transaction(synced=synced) as ledger:
                return work(ledger)
        except sqlite3.Error as error:
            raise unavailable(error) from error

    def _transaction(self, *, synced: bool = False) -> sqlite3.Connection:
        """A connection whose `with` block is one transaction; call it with the write lock."""
        self._writing.execute(f"PRAGMA synchronous={'FULL' if synced else 'NORMAL'}")
        self._writing.execute("BEGIN IMMEDIATE")
        return self._writing
