"""How far the spool on disk can be relied on for what waits in it, when the disk fails.

A sync that fails says that something written before is lost, once, and no later sync can be believed for that file: its
results are kept in memory from then on, beside what is left of them, until they are durable or spooled anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from service.core.errors import ServiceError
from service.saving.local_disk.disk_state import DiskState
from service.saving.spool.files import SpoolFiles
from service.saving.storage.contract import Storage
from service.saving.write_queue import Waiting


class Left(NamedTuple):
    """How many accepted results are not durable when the process ends."""

    spooled: int = 0
    """In the spool: the next start saves them."""
    unsure: int = 0
    """In the spool, but the disk failed to sync them: the next start may find them damaged."""
    lost: int = 0
    """Found neither in the spool nor in the storage."""

    @property
    def total(self) -> int:
        return sum(self)


@dataclass(frozen=True, slots=True)
class SpoolTrust:
    """Keeps results safe whose spool file may be damaged. Thread-safe; its methods block."""

    spool_files: SpoolFiles
    storage: Storage
    disk: DiskState

    def secure(self, group: Iterable[Waiting], everyone: Collection[Waiting]) -> None:
        """Make results that could not be saved outlive the machine, each synced in the spool.

        Args:
            group: results that the caller has taken: no other thread saves them meanwhile.
            everyone: all waiting results; those in a file that cannot be trusted any more are kept in memory.
        """
        for waiting in group:
            if waiting.remembered and self.disk.why:
                continue
            try:
                if waiting.remembered:
                    self.spool_files.write(waiting.id, *waiting.remembered)
                self.spool_files.sync(waiting.id)
                waiting.remembered = None
            except OSError as error:
                self.disk.failed(error, waiting.size)
                self._remember(everyone)

    def left(self, everyone: Iterable[Waiting], lost: int) -> Left:
        """Count what becomes of waiting results if the process ends now; `lost` ones are added. Reads each."""
        spooled = unsure = 0
        for waiting in everyone:
            if not self._is_there(waiting):
                lost += 1
            elif self.spool_files.is_suspect(waiting.id):
                unsure += 1
            else:
                spooled += 1
        return Left(spooled, unsure, lost)

    def _is_there(self, waiting: Waiting) -> bool:
        with suppress(OSError, ServiceError):
            if self.spool_files.read(waiting.id) is not None:
                return True
            if waiting.remembered:
                self.spool_files.write(waiting.id, *waiting.remembered)
                return True
            return self.storage.read_sidecar(waiting.id) is not None  # it has just been saved
        return False

    def _remember(self, everyone: Iterable[Waiting]) -> None:
        for waiting in everyone:
            if waiting.remembered is None and self.spool_files.is_suspect(waiting.id):
                with suppress(OSError):
                    waiting.remembered = self.spool_files.read(waiting.id)
