"""Protection of results against a failed sync of the spool.

A failed sync means that earlier writes to the file may be lost, which Linux reports only once. From then on, the file's
results are also kept in memory until they are durable or spooled again in another file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from service.core.errors import ServiceError
from service.saving.index import ResultIndex
from service.saving.local_disk.disk_state import DiskState
from service.saving.spool.files import SpoolFiles
from service.saving.storage.contract import Storage
from service.saving.write_queue import UnsavedResult


class UnsavedCounts(NamedTuple):
    """Numbers of accepted results that are not durable when the process ends."""

    spooled: int = 0
    """Results in the spool, which the next start saves."""
    unsure: int = 0
    """Results in the spool that the disk failed to sync; the next start may find them damaged."""
    lost: int = 0
    """Results found neither in the spool nor in the storage."""

    @property
    def total(self) -> int:
        return sum(self)


@dataclass(frozen=True, slots=True)
class SpoolSafeguard:
    """Keeps copies of results in memory if their spool file may be damaged. Thread-safe; its methods block."""

    spool_files: SpoolFiles
    storage: Storage
    disk: DiskState
    index: ResultIndex

    def secure_copies(self, group: Collection[UnsavedResult], everyone: Collection[UnsavedResult]) -> None:
        """Sync results that could not be saved, so that the spool's copies survive a power failure.

        Args:
            group: results that the caller has taken, so that no other thread saves them concurrently.
            everyone: all waiting results, of which those in a possibly damaged file are copied to memory.
        """
        deleted = self._deleted([waiting for waiting in group if waiting.in_memory])  # these are spooled again
        for waiting in group:
            if waiting.id in deleted or (waiting.in_memory and self.disk.failure_reason):
                continue
            try:
                if waiting.in_memory:
                    self.spool_files.write(waiting.id, *waiting.in_memory)
                self.spool_files.sync(waiting.id)
                waiting.in_memory = None
            except OSError as error:
                self.disk.record_failure(error, waiting.size)
                self._copy_to_memory(everyone)

    def count_unsaved(self, everyone: Collection[UnsavedResult], lost: int) -> UnsavedCounts:
        """Count the waiting results by their state if the process ended now; `lost`: already lost. Reads them all."""
        spooled = unsure = 0
        deleted = self._deleted(everyone)
        for waiting in everyone:
            if waiting.id in deleted:
                continue
            if not self._is_recoverable(waiting):
                lost += 1
            elif self.spool_files.is_suspect(waiting.id):
                unsure += 1
            else:
                spooled += 1
        return UnsavedCounts(spooled, unsure, lost)

    def _deleted(self, group: Collection[UnsavedResult]) -> set[str]:
        """Return the ids of the group's deleted results; none if the index cannot be read, as a writer checks again."""
        with suppress(ServiceError):
            return self.index.deleted([waiting.id for waiting in group])
        return set()

    def _is_recoverable(self, waiting: UnsavedResult) -> bool:
        with suppress(OSError, ServiceError):
            if self.spool_files.read(waiting.id) is not None:
                return True
            if waiting.in_memory:
                self.spool_files.write(waiting.id, *waiting.in_memory)
                return True
            return self.storage.read_sidecar(waiting.id) is not None  # saved just now
        return False

    def _copy_to_memory(self, everyone: Iterable[UnsavedResult]) -> None:
        for waiting in everyone:
            if waiting.in_memory is None and self.spool_files.is_suspect(waiting.id):
                with suppress(OSError):
                    waiting.in_memory = self.spool_files.read(waiting.id, waiting.body)
