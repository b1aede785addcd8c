"""Which of the waiting results go to the storage together: as many as wait, within bounds, in order of arrival.

`WriteQueue` decides and does nothing else: no locks, no threads. service/saving/store.py guards it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from service.saving.spool_files import Spooled

MOST_BYTES = 64 * 2**20
"""Of those that are written at once: they are in memory at once."""


@dataclass(slots=True)
class Waiting:
    """A result that was accepted and is not durable yet."""

    id: str
    size: int
    """Bytes of its image."""
    since: float
    unspooled: Spooled | None = None
    """Itself, where the disk did not take it."""
    on_saved: Callable[[float], None] | None = None
    failed: bool = False
    """It, or one that it was written with, was not taken: it goes by itself from now on, and holds up nobody."""


class WriteQueue:
    """Results that no thread is writing."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queue: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, waiting: Waiting) -> None:
        """It waits its turn."""
        self._queue.append(waiting)

    def take(self) -> list[Waiting]:
        """The next that go together; at least one, unless there is none."""
        group: list[Waiting] = []
        size = 0
        while self._queue and len(group) < self._most:
            waiting = self._queue[0]
            size += waiting.size
            if group and (waiting.failed or group[0].failed or size > MOST_BYTES):
                break
            group.append(self._queue.popleft())
        return group
