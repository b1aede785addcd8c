"""Accepts finished results, and makes them durable behind the reply: an accepted result is never dropped.

Room is reserved at admission (`reserve`), so that a full spool refuses new work before anything is computed. A finished
result is handed over (`put`): it is spooled on disk, where every process that shares the folder can read it and none
that dies takes it along, and only then promised to the client. Threads bring it to the storage, many at once. A storage
that fails, or is gone, delays that, with growing pauses between the tries; what a dead process left is taken up by the
others, or by the next start. A disk that does not take a result into the spool ends its request, and nothing more is
promised until it does again (disk_state.py).
"""

from __future__ import annotations

import threading
from typing import Any

import structlog

from service.core.errors import ShuttingDown
from service.saving.disk_state import DiskState
from service.saving.finding import ResultFinder
from service.saving.results import Clock, Reservation, SaveObserver, StoredResult, Unobserved
from service.saving.spool.capacity import Backoff, SpoolCapacity, SpoolLimits
from service.saving.spool.files import SpoolFiles
from service.saving.spool.trust import SpoolTrust, UnsavedCounts
from service.saving.storage.contract import Storage
from service.saving.write_queue import UnsavedResult, WriteQueue
from service.telemetry.profiler_ranges import stage_range

_log = structlog.get_logger(__name__)


class ResultStore:
    """Accepts results and makes them durable soon. Thread-safe; `put`, `get`, `sidecar` and `inherit` block."""

    def __init__(  # noqa: PLR0913 -- parts that tests replace
        self,
        storage: Storage,
        spool_files: SpoolFiles,
        limits: SpoolLimits,
        *,
        disk: DiskState | None = None,
        threads: int = 2,
        observer: SaveObserver | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._storage = storage
        self._spooled = spool_files
        self.disk = disk or DiskState(spool_files.owner.root, spool_files.owner.id)
        self._observer = observer or Unobserved()
        self._clock = clock or Clock()
        self._backoff = backoff or Backoff()
        lock = threading.RLock()  # guards all below
        self._changed = threading.Condition(lock)
        self._queued = threading.Condition(lock)  # apart: a writer that pauses must not be the one that is told
        self._spool = SpoolCapacity(limits)
        self._waiting: dict[str, UnsavedResult] = {}  # in order of arrival, until durable
        self._queue = WriteQueue(storage.max_group_size)  # those of them that no thread is writing
        self._finder = ResultFinder(self._waiting, spool_files, storage)
        self._trust = SpoolTrust(spool_files, storage, self.disk)
        self._failures_in_a_row = self._flushing = self._lost = self._comebacks = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._save_until_closed, name=f"save-{n}", daemon=True) for n in range(threads)
        ]

    def start(self) -> ResultStore:
        """Open the spool, take up what dead processes left, and start the writers.

        Raises:
            OSError: the spool cannot be made.
        """
        self._spooled.open()
        self.inherit()
        for thread in self._threads:
            thread.start()
        return self

    def __enter__(self) -> ResultStore:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def reserve(self, bytes_estimate: int) -> Reservation:
        """Promise room for one result; call it at admission, before any work.

        Raises:
            Overloaded: code `spool_full`, with `retry_after_s` from how fast results were saved lately.
            NotReady: code `storage_unavailable`: the disk takes nothing now.
            ShuttingDown: the store is closed.
        """
        self.disk.refuse()
        with self._changed:
            self._refuse_if_closed()
            self._spool.reserve(bytes_estimate, self._clock.now())
        return Reservation(bytes_estimate, self._release)

    def put(self, reservation: Reservation, result: StoredResult) -> None:
        """Accept a finished result, which is spooled when this returns; the writers make it durable.

        Blocks for a write that waits for no device: about 0.1 ms for 100 KB.

        Raises:
            ValueError, TypeError: a bad id or media type, a used reservation, a sidecar that is not JSON: a bug of
                the caller. Nothing was accepted and the reservation stays open.
            NotReady: code `storage_unavailable`: the disk does not take it; the reservation is given back.
            ShuttingDown: the store is closed.
        """
        size, sidecar = len(result.body), result.sidecar_without_digest(self._clock.wall())
        with self._changed:
            self._refuse_if_closed()
            if not reservation.open or result.id in self._waiting:
                raise ValueError(f"the reservation for result {result.id} is used up or the id is not new")
            reservation.open = False
        try:
            self._spooled.write(result.id, result.body, sidecar)
        except OSError as error:
            reservation.open = True
            reservation.release()
            raise self.disk.failed(error, size) from error
        with self._changed:
            self._spool.fill(reservation.estimate, size)
            self._accept(UnsavedResult(result.id, size, self._clock.now(), on_saved=result.on_saved))

    def inherit(self) -> int:
        """Take up what dead processes left; how many results that were. A disk that fails is asked again next time."""
        taken = 0
        try:
            for result_id, spooled in self._spooled.inherit():
                waiting = UnsavedResult(result_id, len(spooled.body), self._clock.now())
                with self._changed:
                    self._spool.inherit(waiting.size)
                    self._accept(waiting)
                taken += 1
        except OSError as error:
            _log.warning("the spool of a dead process cannot be read; it is tried again", error=str(error))
        if taken:
            _log.info("results of a dead process taken up", results=taken)
        return taken

    def get(self, result_id: str) -> tuple[bytes, str] | None:
        """The image and its media type, durable or not yet; None where there is none. Raises as `Storage.read`."""
        return self._finder.image(result_id)

    def sidecar(self, result_id: str) -> dict[str, Any] | None:
        """What is known of a result, durable or not yet; None where there is none. Raises as `get`."""
        return self._finder.sidecar(result_id)

    def look(self) -> None:
        """Try a disk that failed; once it takes results again, those that wait are saved without a pause."""
        if self.disk.look():
            with self._changed:
                self._comebacks += 1
                self._changed.notify_all()

    def left(self) -> UnsavedCounts:
        """What becomes of accepted results if the process ends now; what was lost before is counted, too."""
        return self._trust.left(list(self._waiting.values()), self._lost)

    @property
    def pending(self) -> int:
        """Accepted results that are not durable yet."""
        with self._changed:
            return self._spool.waiting_items

    @property
    def pending_bytes(self) -> int:
        """Their bytes."""
        with self._changed:
            return self._spool.waiting_bytes

    @property
    def oldest_age_s(self) -> float:
        """Seconds since the oldest of them was accepted; 0 when there is none."""
        with self._changed:
            oldest = next(iter(self._waiting.values()), None)
            return self._clock.now() - oldest.since if oldest else 0.0

    def flush(self, timeout_s: float) -> int:
        """Wait until every accepted result is durable; a failing disk is tried again at once, and with short pauses.

        Returns:
            How many results are left: 0, unless the time ran out.
        """
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            self._queued.notify_all()
            self._changed.wait_for(lambda: not self._waiting, timeout_s)
            self._flushing -= 1
            return len(self._waiting)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop the writers after the file they are at; `flush` first. Calling it twice is allowed.

        A writer that hangs in the disk longer than `timeout_s` is left behind: it does not keep the process alive.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._queued.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout_s)
        self._spooled.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ShuttingDown("results are no longer saved here; ask another replica")

    def _release(self, reservation: Reservation) -> None:
        with self._changed:
            if reservation.open:
                reservation.open = False
                self._spool.release(reservation.estimate)
                self._tell_a_writer()

    def _accept(self, waiting: UnsavedResult) -> None:
        self._waiting[waiting.id] = waiting
        self._queue.append(waiting)
        self._tell_a_writer()

    def _tell_a_writer(self) -> None:
        """That there is a first result, to wait for others with; or a group that waits no longer."""
        if len(self._queue) == 1 or (self._queue and not self._ripe_in_s()):
            self._queued.notify()

    def _ripe_in_s(self) -> float:
        return 0.0 if self._flushing else self._queue.ripe_in_s(self._clock.now(), self._spool.reserved_items)

    def _save_until_closed(self) -> None:
        while group := self._next():
            self._save(group)

    def _save(self, group: list[UnsavedResult]) -> None:
        try:
            with stage_range("save", group[0].id):
                found, lost = self._finder.to_save(group)
                self._storage.write_all([(each.body, each.complete_sidecar()) for each in found])
                for waiting in group:
                    self._spooled.remove(waiting.id)
        except Exception as error:  # whatever it is, the writer lives on and the results are kept
            self._keep(group, error)
        else:
            self._forget(group, lost)

    def _next(self) -> list[UnsavedResult]:
        """Those that the next write takes; none when the store is closed."""
        with self._changed:
            while not self._closed:
                pause_s = self._ripe_in_s() if self._queue else None
                if pause_s == 0 or not self._queued.wait(pause_s):  # its time is up
                    group = self._queue.take()
                    self._queued.notify(min(1, len(self._queue)))  # somebody else waits with what was left
                    if group:
                        return group
            return []

    def _forget(self, group: list[UnsavedResult], lost: list[str]) -> None:
        if lost:
            _log.error("results are lost: somebody deleted them from the spool", results=lost)
        with self._changed:
            self._lost += len(lost)
            now = self._clock.now()
            for waiting in group:
                del self._waiting[waiting.id]
                self._spool.drain(waiting.size, now)
            failures, self._failures_in_a_row = self._failures_in_a_row, 0
            self._changed.notify_all()
        if failures:
            _log.info("saving works again", failures=failures)
        for waiting in group:
            for told in filter(None, (self._observer.saved, waiting.on_saved)):
                told(now - waiting.since)

    def _keep(self, group: list[UnsavedResult], error: Exception) -> None:
        with self._changed:
            self._failures_in_a_row += 1
            failures, everyone, comebacks = self._failures_in_a_row, list(self._waiting.values()), self._comebacks
        self._observer.save_failed()
        if failures == 1:  # one line per streak: a full disk fails thousands of times
            _log.error("saving failed; the spool keeps results to try again", error=str(error), pending=len(everyone))
        self._trust.secure(group, everyone)
        if self._storage.shares_spool_disk and isinstance(error, OSError):
            self.disk.suspect(max(waiting.size for waiting in group))
        self.look()
        with self._changed:
            for waiting in group:
                waiting.failed = True
                self._queue.append(waiting)
            if len(group) > 1:  # whose fault it was is not known: each is tried by itself, and the next one at once
                self._queued.notify(len(group))
                return
            flushing = self._flushing
            pause_s = self._backoff.first_s if flushing else self._backoff.pause_s(failures)
            self._changed.wait_for(
                lambda: self._closed or self._flushing > flushing or self._comebacks > comebacks, pause_s
            )
