"""The index of results: who owns each, and which are deleted; shared by all processes of a results folder.

Every thread that stores a copy of a result asks it before and after, so that a deleted result is never stored again
for longer than that moment: a tombstone is committed before the first copy is removed.
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

    A thread that reads does not wait for one that writes.

    Args:
        connections: to the ledger; opened and closed here.
        now: wall clock, in seconds since the epoch.
    """

    def __init__(self, connections: Connections, now: Callable[[], float]) -> None:
        self.connections = connections
        self._now = now
        self._flushing = threading.Lock()
        self._lock = threading.Lock()  # guards `_unwritten`
        self._unwritten: dict[str, tuple[Mapping[str, Any], bool]] = {}
        """Sidecars of results that are not in the table yet, and whether they are saved."""

    def open(self) -> None:
        """Open the ledger. Raises as `Connections.open`."""
        self.connections.open()

    def close(self) -> None:
        """Close the connections. May be called twice."""
        self.connections.close()

    @property
    def pending(self) -> bool:
        """Whether results are not in the table yet: `flush` writes them, or waits for the thread that does."""
        return bool(self._unwritten) or self._flushing.locked()  # in this order: rows are taken under `_flushing`

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
        with self._flushing:
            with self._lock:
                taken, self._unwritten = self._unwritten, {}
            if not taken:
                return
            rows = [row_of(sidecar, saved=saved) for sidecar, saved in taken.values()]
            try:
                self.write(partial(index_table.enter, rows=rows))
            except NotReady as error:
                with self._lock:
                    self._unwritten = {**taken, **self._unwritten}
                _log.warning("results are not listed yet; it is tried again", error=str(error), results=len(taken))

    def bury(self, result_id: str, owner: str) -> bool:
        """Commit and sync the tombstone of a result; False if it was deleted before.

        Raises:
            NotReady: code `ledger_unavailable`: the disk is full or failing; nothing was deleted.
        """
        return self.write(partial(index_table.bury, result_id=result_id, owner=owner, now=self._now()), synced=True)

    def deleted(self, result_ids: Collection[str]) -> set[str]:
        """Return those of the results that are deleted.

        Raises:
            NotReady: code `ledger_unavailable`: it cannot be read now.
        """
        return self.read(partial(index_table.deleted, result_ids=list(result_ids))) if result_ids else set()

    def find(self, result_id: str) -> ResultRow | None:
        """Return what is known of a result, deleted or not; None if there is no row. Raises as `deleted`."""
        return self.read(partial(index_table.find, result_id=result_id)) if is_result_id(result_id) else None

    def forget(self, result_ids: Collection[str]) -> None:
        """Remove the rows of results that no longer exist; tombstones stay. Raises as `bury`."""
        self.write(partial(index_table.forget, result_ids=result_ids))

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`, which only reads. Raises as `deleted`."""
        return self.connections.read(work)

    def write(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        """Run `work` in one transaction; `synced`: wait until it survives a power failure, too. Raises as `bury`."""
        return self.connections.write(work, synced=synced)


def ledger_file(folder: Path) -> SqliteFile:
    """The ledger as a file in a results folder, with the table of results."""
    return SqliteFile(folder / LEDGER_FILE, [index_table.SCHEMA])
