"""The index of results, with the owner of each and tombstones of deleted ones; shared by all processes of a ledger.

A tombstone is committed before the first copy is removed. Every thread that stores a copy of a result checks the index
before and after, and removes the copy of a deleted result again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from service.core.errors import NotReady
from service.ledger.contract import Connections, Transaction
from service.ledger.sqlite_file import LEDGER_FILE, SqliteFile
from service.saving import index_table
from service.saving.index_table import ResultRow, row_of
from service.saving.storage.contract import is_result_id

_log = structlog.get_logger(__name__)
T = TypeVar("T")


class ResultIndex:
    """The table of results in the ledger. Thread-safe; all methods but `announce` block.

    Readers do not wait for writers.

    Args:
        connections: connections to the ledger; opened and closed here.
        now: wall clock, in seconds since the epoch.
    """

    def __init__(self, connections: Connections, now: Callable[[], float]) -> None:
        self.connections = connections
        self._now = now
        self._flushing = threading.Lock()
        self._lock = threading.Lock()  # guards `_unwritten`
        self._unwritten: dict[str, tuple[Mapping[str, Any], bool]] = {}
        """Results that are not in the table yet: sidecar and whether it is saved, by id."""

    def open(self) -> None:
        """Open the ledger. Raises as `Connections.open` does."""
        self.connections.open()

    def close(self) -> None:
        """Close the connections. May be called twice."""
        self.connections.close()

    @property
    def pending(self) -> bool:
        """Whether some results are not in the table yet; `flush` writes them, or waits for a thread that does."""
        return bool(self._unwritten)

    def any_pending(self, result_ids: Sequence[str]) -> bool:
        """Return whether one of these results is not in the table yet."""
        with self._lock:
            return any(one in self._unwritten for one in result_ids)

    def announce(self, sidecar: Mapping[str, Any]) -> None:
        """Record a spooled result; the next `flush`, or its save, inserts it in the table."""
        with self._lock:
            self._unwritten.setdefault(sidecar["id"], (sidecar, False))

    def saved(self, sidecars: Sequence[Mapping[str, Any]]) -> None:
        """Insert durable results. If the ledger rejects them, a later `flush` tries again."""
        with self._lock:
            self._unwritten.update((sidecar["id"], (sidecar, True)) for sidecar in sidecars)
        if sidecars:
            self.flush()

    def spooled(self, sidecars: Sequence[Mapping[str, Any]]) -> None:
        """Insert spooled results, as `saved` does with durable ones."""
        for sidecar in sidecars:
            self.announce(sidecar)
        self.flush()

    def flush(self) -> None:
        """Insert the results that are not in the table yet; a failure is logged, and the next call tries again."""
        with self._flushing:
            with self._lock:
                taken = dict(self._unwritten)
            if not taken:
                return
            rows = [row_of(sidecar, saved=saved) for sidecar, saved in taken.values()]
            try:
                self.write(partial(index_table.enter, rows=rows))
            except NotReady as error:
                _log.warning("results could not be indexed yet; retrying", error=str(error), results=len(taken))
                return
            with self._lock:
                for result_id, written in taken.items():
                    if self._unwritten[result_id] is written:  # else it was saved meanwhile
                        del self._unwritten[result_id]

    def bury(self, result_id: str, owner: str) -> bool:
        """Commit and sync the tombstone of a result; False if it was deleted before.

        Raises:
            NotReady: code `ledger_unavailable`: the ledger cannot be written now; nothing was deleted.
        """
        work = partial(index_table.bury, result_id=result_id, owner=owner, now=self._now())
        return self.connections.write_removal(work, synced=True)

    def bury_in(self, ledger: Transaction, result_id: str, owner: str) -> None:
        """Write the tombstone of a result in a transaction of the same ledger."""
        index_table.bury(ledger, result_id, owner, self._now())

    def deleted(self, result_ids: Collection[str]) -> set[str]:
        """Return the ids of the deleted results among `result_ids`.

        Raises:
            NotReady: code `ledger_unavailable`: the ledger cannot be read now.
        """
        return self.read(partial(index_table.deleted, result_ids=list(result_ids))) if result_ids else set()

    def find(self, result_id: str) -> ResultRow | None:
        """Return the row of a result, which may be a tombstone; None if there is no row. Raises as `deleted` does."""
        return self.read(partial(index_table.find, result_id=result_id)) if is_result_id(result_id) else None

    def forget(self, result_ids: Collection[str]) -> None:
        """Remove the rows of results that no longer exist; tombstones stay. Raises as `bury` does."""
        self.write_removal(partial(index_table.forget, result_ids=result_ids))

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`, which only reads. Raises as `deleted` does."""
        return self.connections.read(work)

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in one transaction. Raises as `bury` does."""
        return self.connections.write(work)

    def write_removal(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`, which belongs to the removal of results, also on a full disk. Raises as `bury` does."""
        return self.connections.write_removal(work)


def ledger_file(folder: Path) -> SqliteFile:
    """Return the ledger as a file in a results folder, with the table of results."""
    return SqliteFile(folder / LEDGER_FILE, [index_table.SCHEMA])
