"""Threads that move results from the spool to the storage, and their handling of errors.

While the storage fails, results are synced in the spool and their saving is retried, with growing pauses.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import structlog

from service.saving.backlog import Backlog
from service.saving.local_disk.disk_state import DiskState
from service.saving.result_finder import ResultFinder
from service.saving.results import SaveObserver
from service.saving.spool.capacity import Backoff
from service.saving.spool_safeguard import SpoolSafeguard
from service.saving.write_queue import UnsavedResult
from service.telemetry.profiler_ranges import stage_range

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Writers:
    """`count` writer threads. They continue after any error, and the results of a failed save are kept."""

    count: int
    backlog: Backlog
    finder: ResultFinder
    safeguard: SpoolSafeguard
    disk: DiskState
    observer: SaveObserver
    backoff: Backoff
    _failures: int = field(default=0, init=False)
    """Number of failed attempts in a row, over all threads."""
    _failing_since: float | None = field(default=None, init=False)
    why_failing: str = field(default="", init=False)
    """Error of the last attempt; empty if it succeeded."""
    _counting: threading.Lock = field(default_factory=threading.Lock, init=False)
    _threads: list[threading.Thread] = field(init=False)

    def __post_init__(self) -> None:
        self._threads = [
            threading.Thread(target=self._save_until_closed, name=f"save-{n}", daemon=True) for n in range(self.count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait, at most `timeout_s` seconds in all, until the threads have ended; the backlog must be closed."""
        ends_at = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, ends_at - time.monotonic()))

    @property
    def failing_s(self) -> float:
        """Seconds since the first of the latest failed attempts; 0 if the last attempt succeeded."""
        since = self._failing_since
        return 0.0 if since is None else self.backlog.now() - since

    def probe_disk(self) -> None:
        """Probe a disk that failed; if it works again, save the waiting results without a pause."""
        if self.disk.probe_if_suspected():
            self.backlog.end_pauses()

    def _save_until_closed(self) -> None:
        while group := self.backlog.next_group():
            try:
                self._save_group(group)
            except Exception:  # noqa: PERF203 -- a bug; a dead thread would leave results unsaved, unnoticed
                results = [waiting.id for waiting in group]
                _log.exception("a step after a save failed; the thread continues", results=results)

    def _save_group(self, group: list[UnsavedResult]) -> None:
        try:
            with stage_range("save", group[0].id):
                lost = self._store_despite_deletions(group)
        except Exception as error:  # whatever the error, the thread continues and the results are kept
            self._keep_after_failure(group, error)
        else:
            self._remove_saved(group, lost)

    def _store_despite_deletions(self, group: list[UnsavedResult]) -> list[str]:
        """Store a group, again after each deletion that removed an unfinished file; see `_store_group`.

        A starting process may remove one, too, so the first time it is stored again in any case.
        """
        deleted: set[str] | None = None
        while True:
            try:
                return self._store_group(group)
            except FileNotFoundError:  # noqa: PERF203 -- the loop is for repetitions
                before, deleted = deleted, self.finder.index.deleted([waiting.id for waiting in group])
                if before is not None and deleted <= before:
                    raise

    def _store_group(self, group: list[UnsavedResult]) -> list[str]:
        """Store the results that are not deleted; returns the ids of lost ones. May be repeated."""
        found, lost = self.finder.spooled_and_lost(group)
        self.finder.storage.write_all([(each.body, each.complete_sidecar()) for each in found])
        self.finder.index.saved([each.sidecar for each in found])
        for result_id in self.finder.index.deleted([waiting.id for waiting in group]):
            self.finder.remove(result_id)  # deleted before or meanwhile: remove copies just stored
        # last, so that another process repeats all steps if this one is killed
        self.finder.spool_files.remove(*(waiting.id for waiting in group))
        return lost

    def _remove_saved(self, group: list[UnsavedResult], lost: list[str]) -> None:
        if lost:
            _log.error("results are lost: they were deleted from the spool", results=lost)
        with self._counting:
            failures, self._failures = self._failures, 0
            self._failing_since, self.why_failing = None, ""
        now = self.backlog.remove_saved(group, len(lost))
        if failures:
            _log.info("saving works again", failures=failures)
        for waiting in group:
            self.observer.saved(now - waiting.since)
            for tell in waiting.on_saved if waiting.id not in lost else ():
                tell(now - waiting.since)

    def _keep_after_failure(self, group: list[UnsavedResult], error: Exception) -> None:
        with self._counting:
            self._failures += 1
            failures, self.why_failing = self._failures, str(error)
            if self._failing_since is None:
                self._failing_since = self.backlog.now()
        everyone, recoveries = self.backlog.all_unsaved(), self.backlog.recoveries
        self.observer.save_failed()
        if failures == 1:  # one line per streak, as a full disk fails thousands of times
            _log.error(
                "saving failed; the spool keeps the results, and saving is retried",
                error=str(error),
                pending=len(everyone),
            )
        self.safeguard.secure_copies(group, everyone)
        if self.finder.storage.shares_spool_disk and isinstance(error, OSError):
            self.disk.suspect_failure(max(waiting.size for waiting in group))
        self.probe_disk()
        self.backlog.retry(group, self.backoff, failures, recoveries)
