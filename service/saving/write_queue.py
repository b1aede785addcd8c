"""Groups waiting results for the storage: which are written together, and when; in order of arrival.

`WriteQueue` only decides: it has no locks and no threads. service/saving/store.py calls it under its lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from service.saving.spool.segment import Spooled

MOST_BYTES = 64 * 2**20
"""Limit of a group's size, because the whole group is in memory."""
GATHER_S = 0.1
"""Seconds that a result waits at most for others to join its group, because a group costs less than single writes."""


@dataclass(slots=True)
class UnsavedResult:
    """A result that was accepted and is not durable yet."""

    id: str
    size: int
    """Bytes of its image."""
    since: float
    """When it was accepted."""
    in_memory: Spooled | None = None
    """A copy in memory, if its spool file may be damaged (trust.py)."""
    on_saved: Callable[[float], None] | None = None
    failed: bool = False
    """Whether its group could not be written; it is then written alone, so that it delays no others."""


class WriteQueue:
    """Results that wait and that no thread is writing."""

    def __init__(self, most: int) -> None:
        self._max_group_size = most
        self._queue: deque[UnsavedResult] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, waiting: UnsavedResult) -> None:
        """Add a result at the end."""
        self._queue.append(waiting)

    def ripe_in_s(self, now: float, coming: int) -> float:
        """Seconds until the next group should be written; 0 if it is full or no result is expected to join it.

        Args:
            now: seconds on the clock of `UnsavedResult.since`.
            coming: number of reserved results that have not arrived.
        """
        if not coming or not self._queue or self._queue[0].failed or len(self._queue) >= self._max_group_size:
            return 0.0
        return max(0.0, self._queue[0].since + GATHER_S - now)

    def take(self) -> list[UnsavedResult]:
        """Remove and return the next group; empty only if the queue is."""
        group: list[UnsavedResult] = []
        size = 0
        while self._queue and len(group) < self._max_group_size:
            waiting = self._queue[0]
            size += waiting.size
            if group and (waiting.failed or group[0].failed or size > MOST_BYTES):
                break
            group.append(self._queue.popleft())
        return group
