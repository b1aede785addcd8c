"""The queue of results to be saved: which go to the storage together, and when.

`WriteQueue` decides and does nothing else: no locks, no threads. `Backlog` guards it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from service.saving.spool.segment import SpooledResult

MOST_BYTES = 64 * 2**20
"""The most bytes that are written at once, and so held in memory at once."""
GATHER_S = 0.1
"""The longest that a result waits for others that are on their way: saved together they cost less, and meanwhile no
writer takes the interpreter from threads that compute replies."""


@dataclass(slots=True)
class UnsavedResult:
    """A result that was accepted and is not durable yet."""

    id: str
    size: int
    """Bytes of its image."""
    since: float
    body: bytes | None = None
    """Its image, until it was tried to save it: the spool need not be read then."""
    in_memory: SpooledResult | None = None
    """The result itself, where the spool cannot be trusted (spool_safeguard.py)."""
    on_saved: tuple[Callable[[float], None], ...] = ()
    """Called on a writer's thread when it is durable, with the seconds since it was accepted."""
    failed: bool = False
    """Saving it, or a group with it, has failed: it is saved alone from now on and delays no other."""


class WriteQueue:
    """Results that no writer has taken, in order of arrival.

    Args:
        most: the most results of a group.
        gather_s: the longest that a result waits for others.
    """

    def __init__(self, most: int, gather_s: float = GATHER_S) -> None:
        self._max_group_size, self._gather_s = most, gather_s
        self._queue: deque[UnsavedResult] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, waiting: UnsavedResult) -> None:
        """Add a result at the end."""
        self._queue.append(waiting)

    def next_group_due_in_s(self, now: float, coming: int, free_items: int) -> float:
        """Seconds until the next group should be written; 0 if it is full or no result is expected to join it.

        A group that fills half of the spool's free places does not wait either, or the spool would refuse new results.

        Args:
            now: in seconds, of the clock that `UnsavedResult.since` was read from.
            coming: reservations whose results have not arrived yet.
            free_items: how many more results the spool can take.
        """
        enough = min(self._max_group_size, free_items)
        if not coming or not self._queue or self._queue[0].failed or len(self._queue) >= enough:
            return 0.0
        return max(0.0, self._queue[0].since + self._gather_s - now)

    def take_group(self) -> list[UnsavedResult]:
        """Take the results that are saved together next; none if the queue is empty."""
        group: list[UnsavedResult] = []
        size = 0
        while self._queue and len(group) < self._max_group_size:
            waiting = self._queue[0]
            size += waiting.size
            if group and (waiting.failed or group[0].failed or size > MOST_BYTES):
                break
            group.append(self._queue.popleft())
        return group
