"""The queue of results to be saved, which decides which results are stored together and when.

`WriteQueue` decides and does nothing else: no locks, no threads. `Backlog` guards it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from service.saving.spool.segment import SpooledResult

MAX_GROUP_BYTES = 64 * 2**20
"""Largest size of a group in bytes, which are all in memory at once; a larger result forms a group alone."""
GATHER_S = 0.1
"""Longest time in seconds that a result waits for others that are about to arrive. Saving a group is cheaper, and while
results gather, writers do not compete for the GIL with threads that compute replies."""


@dataclass(slots=True)
class UnsavedResult:
    """A result that was accepted and is not durable yet."""

    id: str
    size: int
    """Size of its image, in bytes."""
    since: float
    """Time at which it was accepted, on the monotonic clock."""
    body: bytes | None = None
    """Its image until the first attempt to save it, so that the spool need not be read."""
    in_memory: SpooledResult | None = None
    """A copy of the result, if the spool's copy may be damaged (spool_safeguard.py)."""
    on_saved: tuple[Callable[[float], None], ...] = ()
    """Called on a writer's thread when it is durable, with the seconds since it was accepted."""
    failed: bool = False
    """Whether saving it, alone or in a group, has failed; it is then saved alone, so that it delays no other result."""


class WriteQueue:
    """Results that no writer has taken, in order of arrival.

    Args:
        max_group_size: largest number of results in a group.
        gather_s: longest time that a result waits for others, in seconds.
    """

    def __init__(self, max_group_size: int, gather_s: float = GATHER_S) -> None:
        self._max_group_size, self._gather_s = max_group_size, gather_s
        self._queue: deque[UnsavedResult] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, waiting: UnsavedResult) -> None:
        """Add a result at the end."""
        self._queue.append(waiting)

    def next_group_due_in_s(self, now: float, coming: int, free_items: int) -> float:
        """Return the seconds until the next group should be written; 0 if it is full or no result is expected.

        Nor does a group wait that has at least as many results as the spool still has space for, because the spool
        would soon refuse new ones.

        Args:
            now: time in seconds, on the clock of `UnsavedResult.since`.
            coming: number of reservations whose results have not arrived yet.
            free_items: number of results for which the spool still has space.
        """
        enough = min(self._max_group_size, free_items)
        if not coming or not self._queue or self._queue[0].failed or len(self._queue) >= enough:
            return 0.0
        return max(0.0, self._queue[0].since + self._gather_s - now)

    def take_group(self) -> list[UnsavedResult]:
        """Take the next group of results to save together; empty if the queue is empty."""
        group: list[UnsavedResult] = []
        size = 0
        while self._queue and len(group) < self._max_group_size:
            waiting = self._queue[0]
            size += waiting.size
            if group and (waiting.failed or group[0].failed or size > MAX_GROUP_BYTES):
                break
            group.append(self._queue.popleft())
        return group
