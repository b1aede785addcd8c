"""The backlog: results that were promised or accepted and are not durable yet.

One lock guards the reserved and used spool space, the results, and the queue of results that no writer has taken. The
backlog does no input or output.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from service.core.errors import ShuttingDown
from service.saving.results import Clock, SpoolReservation, StoredResult
from service.saving.spool.capacity import Backoff, SpoolCapacity, SpoolLimits
from service.saving.write_queue import GATHER_S, UnsavedResult, WriteQueue

MAX_KEPT_BYTES = 8 * 2**20
"""Limit of waiting images' bytes in memory; images beyond it are read from the spool again before they are saved."""


class Backlog:
    """Reservations and the queue of unsaved results. Thread-safe; `next_group`, `retry`, `wait_until_empty` block.

    Args:
        limits: limits of reserved and waiting results together.
        max_group_size: largest number of results in a writer's group.
        clock: the clocks of the store; ages are measured with its `now`.
        gather_s: longest time that a result waits for others to be saved with, in seconds.
    """

    def __init__(self, limits: SpoolLimits, max_group_size: int, clock: Clock, gather_s: float = GATHER_S) -> None:
        self._clock = clock
        lock = threading.RLock()  # guards all attributes below
        self._changed = threading.Condition(lock)
        self._queued = threading.Condition(lock)  # separate, so that a notification does not wake a pausing writer
        self._spool = SpoolCapacity(limits)
        self.waiting: dict[str, UnsavedResult] = {}
        """Accepted results by id, in order of arrival; other threads may look one up without the lock."""
        self._queue = WriteQueue(max_group_size, gather_s)  # the results that no writer has taken
        self._flushing = self._lost = self._recoveries = self._kept_bytes = 0
        self._closed = False

    def reserve(self, bytes_estimate: int) -> SpoolReservation:
        """Reserve space for one result of about that many bytes.

        Raises:
            Overloaded: code `spool_full`.
            ShuttingDown: the backlog is closed.
        """
        with self._changed:
            self._refuse_if_closed()
            self._spool.reserve(bytes_estimate, self._clock.now())
            self._wake_if_due()  # a gathering group may have counted on the space
        return SpoolReservation(bytes_estimate, self._release)

    def use_reservation(self, reservation: SpoolReservation, result_id: str) -> None:
        """Use a reservation for a result; `enqueue_spooled`, `free_used_reservation` or `reopen` must follow.

        Raises:
            ValueError: the reservation was already used, or the id is not new.
            ShuttingDown: the backlog is closed.
        """
        with self._changed:
            self._refuse_if_closed()
            if not reservation.open or result_id in self.waiting:
                raise ValueError(f"the reservation for result {result_id} is used up or the id is not new")
            reservation.open = False

    def free_used_reservation(self, reservation: SpoolReservation) -> None:
        """Free the space of a used reservation after its result was rejected."""
        self.reopen(reservation)
        reservation.release()

    def reopen(self, reservation: SpoolReservation) -> None:
        """Undo the use of a reservation whose result was not spooled."""
        with self._changed:
            reservation.open = True

    def enqueue_spooled(self, reservation: SpoolReservation, result: StoredResult) -> None:
        """Queue a result that was just spooled in the space of a used reservation."""
        size = len(result.body)
        with self._changed:
            self._spool.fill(reservation.estimate, size)
            on_saved = (result.on_saved,) if result.on_saved else ()
            body = result.body if self._kept_bytes + size <= MAX_KEPT_BYTES else None
            self._kept_bytes += size if body is not None else 0
            self._enqueue(UnsavedResult(result.id, size, self._clock.now(), body, on_saved=on_saved))

    def call_when_saved(self, result_id: str, call: Callable[[float], None]) -> bool:
        """Register `call` as an `UnsavedResult.on_saved`; False if the result does not wait to be saved."""
        with self._changed:
            if (waiting := self.waiting.get(result_id)) is None:
                return False
            waiting.on_saved = (*waiting.on_saved, call)
            return True

    def inherit(self, result_id: str, size: int) -> None:
        """Queue a result of `size` bytes that a dead process left in the spool."""
        with self._changed:
            self._spool.inherit(size)
            self._enqueue(UnsavedResult(result_id, size, self._clock.now()))

    def next_group(self) -> list[UnsavedResult]:
        """Wait for the next group to write and take it; returns an empty list once the backlog is closed."""
        with self._changed:
            while not self._closed:
                pause_s = self._next_group_due_in_s() if self._queue else None
                if pause_s == 0 or not self._queued.wait(pause_s):  # the oldest has waited long enough
                    group = self._queue.take_group()
                    self._queued.notify(min(1, len(self._queue)))  # another writer waits for the remaining results
                    if group:
                        return group
            return []

    def remove_saved(self, group: list[UnsavedResult], lost: int) -> float:
        """Remove results that are durable or, `lost` of them, lost; returns the time on the monotonic clock."""
        with self._changed:
            self._lost += lost
            now = self._clock.now()
            for waiting in group:
                del self.waiting[waiting.id]
                self._remove_entry(waiting)
                self._spool.drain(waiting.size, now)
            self._changed.notify_all()
        return now

    def retry(self, group: list[UnsavedResult], pause: Backoff, failures: int, recoveries: int) -> None:
        """Requeue results that could not be saved, to be retried one by one; then pause the calling writer.

        A writer pauses only after a single result: it is unknown which result of a group caused the failure, so a
        group's results are retried at once. A flush, a recovery of the disk or `close` cuts the pause short.

        Args:
            group: the results that the writer tried to save together.
            pause: length of the pause.
            failures: number of failed attempts in a row.
            recoveries: value of `recoveries` when the attempt failed.
        """
        with self._changed:
            for waiting in group:
                waiting.failed = True
                self._remove_entry(waiting)
                self._queue.append(waiting)
            if len(group) > 1:
                self._queued.notify(len(group))
                return
            flushing = self._flushing
            self._changed.wait_for(
                lambda: self._closed or self._flushing > flushing or self._recoveries > recoveries,
                pause.first_s if flushing else pause.pause_s(failures),
            )

    def end_pauses(self) -> None:
        """Cut every pause short, as the disk works again."""
        with self._changed:
            self._recoveries += 1
            self._changed.notify_all()

    def wait_until_empty(self, timeout_s: float) -> int:
        """Make writers save without delay, and wait until no result is left or the time is up; returns how many are."""
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            self._queued.notify_all()
            self._changed.wait_for(lambda: not self.waiting, timeout_s)
            self._flushing -= 1
            return len(self.waiting)

    def close(self) -> None:
        """Accept no more results, and let the writers end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._queued.notify_all()

    def now(self) -> float:
        """Return the time on the clock of the ages, in seconds."""
        return self._clock.now()

    @property
    def recoveries(self) -> int:
        """The number of recoveries of the disk."""
        return self._recoveries

    @property
    def lost_results(self) -> int:
        """The number of accepted results that were found neither in the spool nor in the storage."""
        return self._lost

    @property
    def items(self) -> int:
        """The number of accepted results that are not durable yet."""
        with self._changed:
            return self._spool.waiting_items

    @property
    def bytes(self) -> int:
        """The size of the accepted results that are not durable yet, in bytes."""
        with self._changed:
            return self._spool.waiting_bytes

    @property
    def oldest_age_s(self) -> float:
        """Seconds since the oldest waiting result was accepted; 0 if there is none."""
        with self._changed:
            oldest = next(iter(self.waiting.values()), None)
            return self._clock.now() - oldest.since if oldest else 0.0

    def all_unsaved(self) -> list[UnsavedResult]:
        """Return all accepted results that are not durable yet, oldest first."""
        with self._changed:
            return list(self.waiting.values())

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ShuttingDown("results are no longer saved here; ask another replica")

    def _release(self, reservation: SpoolReservation) -> None:
        with self._changed:
            if reservation.open:
                reservation.open = False
                self._spool.release(reservation.estimate)
                self._wake_if_due()

    def _enqueue(self, waiting: UnsavedResult) -> None:
        self.waiting[waiting.id] = waiting
        self._queue.append(waiting)
        if len(self._queue) == 1:  # a writer gathers others from now on
            self._queued.notify()
        else:
            self._wake_if_due()

    def _remove_entry(self, waiting: UnsavedResult) -> None:
        """Drop a result's image from memory."""
        if waiting.body is not None:
            waiting.body = None
            self._kept_bytes -= waiting.size

    def _wake_if_due(self) -> None:
        """Wake one writer if there is a group that should be written now."""
        if self._queue and not self._next_group_due_in_s():
            self._queued.notify()

    def _next_group_due_in_s(self) -> float:
        if self._flushing:
            return 0.0
        return self._queue.next_group_due_in_s(self._clock.now(), self._spool.reserved_items, self._spool.free_items)
