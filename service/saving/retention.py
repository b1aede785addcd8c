"""Retention: deletes stored results beyond the limits of age and size, oldest first, image and sidecar together.

Only results are deleted, never other objects in the same bucket or folder, nor results that are still in the spool.
`plan_deletions` decides; `Retention` deletes.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from service.saving.storage.contract import Storage, StoredObject

_log = structlog.get_logger(__name__)
_MAX_FAILURES_IN_A_ROW = 3
"""Failed results after which a sweep ends: then the whole storage fails, as a bucket does that is not reachable."""
_INCOMPLETE_AGE_S = 3600.0
"""Age in seconds from which an image without sidecar, or a sidecar without image, counts as garbage of a crash."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """Limits of the results to keep; 0 means no limit."""

    max_age_s: float = 0.0
    max_bytes: int = 0

    @property
    def is_limited(self) -> bool:
        """Whether any limit is set."""
        return bool(self.max_age_s or self.max_bytes)


@dataclass(slots=True)
class _StoredResultObjects:
    names: list[str] = field(default_factory=list)
    size: int = 0
    modified_at: float = 0.0

    def add(self, stored: StoredObject) -> None:
        self.names.append(stored.name)
        self.size += stored.size
        self.modified_at = max(self.modified_at, stored.modified_at)

    @property
    def is_complete(self) -> bool:
        return len(self.names) > 1

    def deletion_order(self) -> list[str]:
        """Return the names in the order of deletion: the sidecar first, so that a sidecar always has its image."""
        return sorted(self.names, key=lambda name: not name.endswith(".json"))


def plan_deletions(
    entries: Iterable[StoredObject], limits: RetentionLimits, now: float, spooled: Collection[str] = frozenset()
) -> list[str]:
    """Return the names of the objects to delete, in the order of deletion.

    Args:
        entries: all objects in the storage.
        limits: the retention limits.
        now: current time, in seconds since the epoch.
        spooled: ids of results that were in the spool before the storage was listed; they may be being written, and
            are not deleted.
    """
    results: dict[str, _StoredResultObjects] = {}
    for stored in entries:
        if stored.is_ours and stored.result_id not in spooled:
            results.setdefault(stored.result_id, _StoredResultObjects()).add(stored)
    left = sum(result.size for result in results.values() if result.is_complete)
    deleted: list[str] = []
    for result in sorted(results.values(), key=lambda one: one.modified_at):
        age_s = now - result.modified_at
        if not result.is_complete:
            deleted += result.names if age_s > _INCOMPLETE_AGE_S else []
        elif 0 < limits.max_age_s < age_s or 0 < limits.max_bytes < left:
            deleted += result.deletion_order()
            left -= result.size
    return deleted


class RetryOrder:
    """The order in which results are removed: those that failed before come last, so that each has its turn."""

    def __init__(self) -> None:
        self._failed: dict[str, None] = {}  # latest failure last

    def __len__(self) -> int:
        """Return the number of results that failed."""
        return len(self._failed)

    def sort(self, ids: Collection[str]) -> list[str]:
        """Return the ids in the order in which to remove them; forgets failures of other results."""
        for result_id in self._failed.keys() - set(ids):
            del self._failed[result_id]
        turns = {result_id: turn for turn, result_id in enumerate(self._failed, 1)}
        return sorted(ids, key=lambda one: turns.get(one, 0))

    def note(self, result_id: str, *, removed: bool) -> None:
        """Note whether a result could be removed."""
        self._failed.pop(result_id, None)
        if not removed:
            self._failed[result_id] = None


@dataclass(frozen=True, slots=True)
class Retention:
    """Deletes the objects that `plan_deletions` names, in one process at a time. Blocks."""

    storage: Storage
    lock: Path
    limits: RetentionLimits
    now: Callable[[], float]
    spooled: Callable[[], Collection[str]]
    """Ids of all results that are in the spool."""
    forget: Callable[[Collection[str]], None] = lambda _: None
    """Called with the ids of results after they were deleted."""
    _order: RetryOrder = field(default_factory=RetryOrder, init=False)

    def delete_excess(self) -> int:
        """Delete once, and return the number of deleted objects.

        Raises:
            OSError: the storage cannot be listed, or some results cannot be deleted; the next sweep continues.
            NotReady: the index cannot be written.
        """
        with self.lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # another process is deleting
                return 0
            spooled = self.spooled()  # before the storage is listed
            deleted = plan_deletions(self.storage.entries(), self.limits, self.now(), spooled)
            gone: set[str] = set()
            try:
                self._delete(deleted, gone)
            finally:
                if gone:
                    self.forget(gone)
        if deleted:
            _log.info("old results deleted", objects=len(deleted))
        return len(deleted)

    def _delete(self, names: Iterable[str], gone: set[str]) -> None:
        """Delete objects, those of one result together; adds the ids of results to `gone`. See `delete_excess`."""
        results: dict[str, list[str]] = {}
        for name in names:
            results.setdefault(name[3:].partition(".")[0], []).append(name)
        errors: list[OSError] = []
        in_a_row = 0
        for result_id in self._order.sort(results):
            try:
                for name in results[result_id]:
                    self.storage.delete(name)
                    gone.add(result_id)
            except OSError as error:  # noqa: PERF203 -- one result must not stop the others
                self._order.note(result_id, removed=False)
                errors.append(error)
                in_a_row += 1
                if in_a_row == _MAX_FAILURES_IN_A_ROW:
                    break
            else:
                self._order.note(result_id, removed=True)
                in_a_row = 0
        if errors:
            raise errors[0]
