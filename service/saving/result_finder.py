"""Search for a result by its id, in the spool and in the storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from service.core.errors import NotReady
from service.saving.index import ResultIndex
from service.saving.spool.files import SpoolFiles
from service.saving.spool.segment import SpooledResult
from service.saving.storage.contract import Storage, is_result_id, unreadable_error
from service.saving.write_queue import UnsavedResult

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResultFinder:
    """Looks for results in memory, in the spool and in the storage. Thread-safe; its methods block.

    waiting: this process's results that are not durable yet, by id; other threads change it concurrently.
    """

    waiting: Mapping[str, UnsavedResult]
    spool_files: SpoolFiles
    storage: Storage
    index: ResultIndex

    def spooled(self, result_id: str) -> SpooledResult | None:
        """Return a result that any process has spooled; None if it is not in the spool.

        Callers search the spool before the storage, because a result leaves the spool once it is stored.

        Raises:
            NotReady: the result cannot be read now.
        """
        waiting = self.waiting.get(result_id)  # a single look-up in a dictionary needs no lock
        if waiting and (in_memory := waiting.in_memory):
            return in_memory
        try:
            return self.spool_files.read(result_id)
        except OSError as error:
            raise unreadable_error(result_id, error) from error

    def image(self, result_id: str) -> tuple[bytes, str] | None:
        """Return the image and its media type; None if the result does not exist or was deleted.

        Raises:
            NotReady, ServiceError: as raised by `spooled`, `Storage.read` and `ResultIndex.deleted`.
        """
        return self._read(result_id, lambda spooled: (spooled.body, spooled.sidecar["media_type"]), self.storage.read)

    def sidecar(self, result_id: str) -> dict[str, Any] | None:
        """Return the sidecar of a result; None if it does not exist or was deleted. Raises as `image` does."""
        return self._read(result_id, SpooledResult.complete_sidecar, self.storage.read_sidecar)

    def _read(
        self, result_id: str, of_spooled: Callable[[SpooledResult], T], of_stored: Callable[[str], T | None]
    ) -> T | None:
        if not self._may_be_read(result_id):
            return None
        try:
            spooled = self.spooled(result_id)
        except NotReady:  # what cannot be read there may be another result, and this one stored
            if (stored := of_stored(result_id)) is None:
                raise
            return stored
        return of_spooled(spooled) if spooled else of_stored(result_id)

    def spooled_and_lost(self, group: Sequence[UnsavedResult]) -> tuple[list[SpooledResult], list[str]]:
        """Return the spooled results of a group, and the ids of those found neither in the spool nor in the storage.

        Deleted results are in neither list.

        Raises:
            OSError: the spool cannot be read.
            ServiceError: as raised by `Storage.read_sidecar` and `ResultIndex.deleted`.
        """
        deleted = self.index.deleted([waiting.id for waiting in group])
        kept = [waiting for waiting in group if waiting.id not in deleted]
        found = {waiting.id: waiting.in_memory or self.spool_files.read(waiting.id, waiting.body) for waiting in kept}
        missing = [result_id for result_id, spooled in found.items() if spooled is None]
        lost = [result_id for result_id in missing if self.storage.read_sidecar(result_id) is None]
        just_deleted = self.index.deleted(lost)
        return [spooled for spooled in found.values() if spooled], [one for one in lost if one not in just_deleted]

    def remove(self, result_id: str) -> None:
        """Remove every copy of a result whose tombstone is committed. May be repeated.

        Raises:
            OSError: a copy cannot be removed now.
        """
        try:
            self.storage.remove(result_id)
        finally:  # also while the storage fails, so that the disk of the spool gets its space back
            self.spool_files.remove(result_id)
            self.spool_files.erase(result_id)

    def _may_be_read(self, result_id: str) -> bool:
        return is_result_id(result_id) and not self.index.deleted((result_id,))
