"""Keeps results safe when a sync of the spool fails.

A failed sync means that earlier writes to that file may be lost, and Linux reports it only once. The file's results are
then kept in memory, too, until they are durable or spooled again in another file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from service.core.errors import ServiceError
from service.saving.disk_state import DiskState
from service.saving.spool.files import SpoolFiles
from service.saving.storage.contract import Storage
from service.saving.write_queue import UnsavedResult


class UnsavedCounts(NamedTuple):
    """Numbers of accepted results that are not durable when the process ends."""

    spooled: int = 0
    """In the spool, from which the next start saves them."""
    unsure: int = 0
    """In the spool, but not synced, so that the next start may find them damaged."""
    lost: int = 0
    """Neither in the spool nor in the storage."""

    @property
    def total(self) -> int:
        return sum(self)


@dataclass(frozen=True, slots=True)
class SpoolTrust:
    """Syncs spooled results, and keeps those in memory that cannot be synced. Thread-safe; its methods block."""

    spool_files: SpoolFiles
    storage: Storage
    disk: DiskState

    def secure(self, group: Iterable[UnsavedResult], everyone: Collection[UnsavedResult]) -> None:
        """Sync results that could not be saved, so that the spool's copies survive a power failure.

        Args:
            group: the results that could not be saved; no other thread writes them now.
            everyone: all waiting results; those in a file whose sync failed are copied to memory.
        """
        for waiting in group:
            if waiting.in_memory and self.disk.why:
                continue
            try:
                if waiting.in_memory:
                    self.spool_files.write(waiting.id, *waiting.in_memory)
                self.spool_files.sync(waiting.id)
                waiting.in_memory = None
            except OSError as error:
                self.disk.failed(error, waiting.size)
                self._copy_to_memory(everyone)

    def left(self, everyone: Iterable[UnsavedResult], lost: int) -> UnsavedCounts:
        """Count where the waiting results would be if the process ended now; `lost` are lost already. Reads each."""
        spooled = unsure = 0
        for waiting in everyone:
            if not self._is_there(waiting):
                lost += 1
            elif self.spool_files.is_suspect(waiting.id):
                unsure += 1
            else:
                spooled += 1
        return UnsavedCounts(spooled, unsure, lost)

    def _is_there(self, waiting: UnsavedResult) -> bool:
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
                    waiting.in_memory = self.spool_files.read(waiting.id)
