"""The backlog: results that were promised or accepted and are not durable yet, and what waits for them to be.

It keeps three things in step under one lock: the room that is promised and used in the spool, the results themselves,
and the queue of those that no writer has taken. It does no input or output.
"""

from __future__ import annotations

import threading

from service.core.errors import ShuttingDown
from service.saving.results import Clock, Reservation, StoredResult
from service.saving.spool.capacity import Backoff, SpoolCapacity, SpoolLimits
from service.saving.write_queue import UnsavedResult, WriteQueue


class Backlog:
    """Thread-safe. `next_group`, `retry` and `wait_until_empty` block.

    Args:
        limits: how much may be promised and waiting together.
        most_at_once: the most results that a writer takes together.
        clock: `now` says how old results are.
    """

    def __init__(self, limits: SpoolLimits, most_at_once: int, clock: Clock) -> None:
        self._clock = clock
        lock = threading.RLock()  # guards all below
        self._changed = threading.Condition(lock)
        self._queued = threading.Condition(lock)  # apart: a notification must not wake a writer that pauses
        self._spool = SpoolCapacity(limits)
        self.waiting: dict[str, UnsavedResult] = {}
        """Accepted results by id, in order of arrival; other threads may look one up without the lock."""
        self._queue = WriteQueue(most_at_once)  # those of them that no writer has taken
        self._flushing = self._lost = self._recoveries = 0
        self._closed = False

    def reserve(self, bytes_estimate: int) -> Reservation:
        """Promise room for one result of about that size. Raises as `ResultStore.reserve`, but for the disk."""
        with self._changed:
            self._refuse_if_closed()
            self._spool.reserve(bytes_estimate, self._clock.now())
        return Reservation(bytes_estimate, self._release)

    def use(self, reservation: Reservation, result_id: str) -> None:
        """Use up a reservation for that result; `accept` or `give_back` must follow.

        Raises:
            ValueError: the reservation is used up, or the id is not new.
            ShuttingDown: the backlog is closed.
        """
        with self._changed:
            self._refuse_if_closed()
            if not reservation.open or result_id in self.waiting:
                raise ValueError(f"the reservation for result {result_id} is used up or the id is not new")
            reservation.open = False

    def give_back(self, reservation: Reservation) -> None:
        """Free the room of a used reservation whose result was not accepted."""
        reservation.open = True
        reservation.release()

    def accept(self, reservation: Reservation, result: StoredResult) -> None:
        """Queue a result that has just been spooled in the room of that used reservation."""
        size = len(result.body)
        with self._changed:
            self._spool.fill(reservation.estimate, size)
            self._append(UnsavedResult(result.id, size, self._clock.now(), on_saved=result.on_saved))

    def inherit(self, result_id: str, size: int) -> None:
        """Queue a result of `size` bytes that a dead process left in the spool."""
        with self._changed:
            self._spool.inherit(size)
            self._append(UnsavedResult(result_id, size, self._clock.now()))

    def next_group(self) -> list[UnsavedResult]:
        """Take the results to write next, as soon as they should go; none once the backlog is closed."""
        with self._changed:
            while not self._closed:
                pause_s = self._ripe_in_s() if self._queue else None
                if pause_s == 0 or not self._queued.wait(pause_s):  # its time is up
                    group = self._queue.take()
                    self._queued.notify(min(1, len(self._queue)))  # another writer waits with what was left
                    if group:
                        return group
            return []

    def saved(self, group: list[UnsavedResult], lost: int) -> float:
        """Forget results that are durable, or, `lost` of them, gone; returns when, on the monotonic clock."""
        with self._changed:
            self._lost += lost
            now = self._clock.now()
            for waiting in group:
                del self.waiting[waiting.id]
                self._spool.drain(waiting.size, now)
            self._changed.notify_all()
        return now

    def retry(self, group: list[UnsavedResult], pause: Backoff, failures: int, recoveries: int) -> None:
        """Queue results that could not be saved again, each by itself; then pause the writer that tried.

        A writer pauses only for a single result: which of a group is at fault is not known, so that the next is tried
        at once. A flush, a recovery of the disk or the end cuts the pause short.

        Args:
            group: what was tried together.
            pause: how long to pause.
            failures: how many tries in a row have failed.
            recoveries: `recoveries` when the try had failed.
        """
        with self._changed:
            for waiting in group:
                waiting.failed = True
                self._queue.append(waiting)
            if len(group) > 1:
                self._queued.notify(len(group))
                return
            flushing = self._flushing
            self._changed.wait_for(
                lambda: self._closed or self._flushing > flushing or self._recoveries > recoveries,
                pause.first_s if flushing else pause.pause_s(failures),
            )

    def recovered(self) -> None:
        """Cut every pause short: the disk takes results again."""
        with self._changed:
            self._recoveries += 1
            self._changed.notify_all()

    def wait_until_empty(self, timeout_s: float) -> int:
        """Hurry the writers, and wait until nothing is left or the time is up; returns how many results are left."""
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            self._queued.notify_all()
            self._changed.wait_for(lambda: not self.waiting, timeout_s)
            self._flushing -= 1
            return len(self.waiting)

    def close(self) -> None:
        """Accept nothing more, and let the writers end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._queued.notify_all()

    @property
    def recoveries(self) -> int:
        """How often the disk has recovered."""
        return self._recoveries

    @property
    def lost(self) -> int:
        """How many accepted results were found in no place any more."""
        return self._lost

    @property
    def items(self) -> int:
        """Accepted results that are not durable yet."""
        with self._changed:
            return self._spool.waiting_items

    @property
    def bytes(self) -> int:
        """Their bytes."""
        with self._changed:
            return self._spool.waiting_bytes

    @property
    def oldest_age_s(self) -> float:
        """Seconds since the oldest of them was accepted; 0 when there is none."""
        with self._changed:
            oldest = next(iter(self.waiting.values()), None)
            return self._clock.now() - oldest.since if oldest else 0.0

    def everyone(self) -> list[UnsavedResult]:
        """All accepted results that are not durable yet, oldest first."""
        with self._changed:
            return list(self.waiting.values())

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ShuttingDown("results are no longer saved here; ask another replica")

    def _release(self, reservation: Reservation) -> None:
        with self._changed:
            if reservation.open:
                reservation.open = False
                self._spool.release(reservation.estimate)
                self._wake_a_writer()

    def _append(self, waiting: UnsavedResult) -> None:
        self.waiting[waiting.id] = waiting
        self._queue.append(waiting)
        self._wake_a_writer()

    def _wake_a_writer(self) -> None:
        """Wake one for the first result, which it gathers others with, or for a group that should go now."""
        if len(self._queue) == 1 or (self._queue and not self._ripe_in_s()):
            self._queued.notify()

    def _ripe_in_s(self) -> float:
        return 0.0 if self._flushing else self._queue.ripe_in_s(self._clock.now(), self._spool.reserved_items)
