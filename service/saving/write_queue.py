"""Which of the waiting results go to the storage together, and when: as many as wait, in order of arrival.

`WriteQueue` decides and does nothing else: no locks, no threads. `Backlog` guards it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from service.saving.spool.segment import Spooled

MOST_BYTES = 64 * 2**20
"""The most bytes that are written at once, and so held in memory at once."""
GATHER_S = 0.1
"""So long a result waits at most for others that are on their way: saved together they cost less, and meanwhile no
saving thread takes the interpreter from those who compute replies."""


@dataclass(slots=True)
class Waiting:
    """A result that was accepted and is not durable yet."""

    id: str
    size: int
    """Bytes of its image."""
    since: float
    remembered: Spooled | None = None
    """Itself, where the spool cannot be relied on (trust.py)."""
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
        """Add a result at the end."""
        self._queue.append(waiting)

    def ripe_in_s(self, now: float, coming: int) -> float:
        """Seconds until the next group should go: 0 where it is full, or nothing is coming that could join it.

        Args:
            now: in seconds, of the clock that `Waiting.since` was read from.
            coming: promised results that are not here yet.
        """
        if not coming or not self._queue or self._queue[0].failed or len(self._queue) >= self._most:
            return 0.0
        return max(0.0, self._queue[0].since + GATHER_S - now)

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
