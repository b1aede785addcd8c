"""Virtual time: events run in the order of their times, and the clock jumps from one to the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Events:
    """A clock in seconds and the pending events; events at the same time run in the order in which they were added."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._added = 0

    def clock(self) -> float:
        """Return the time; passed as the clock to parts that need one."""
        return self.now

    def at(self, time_s: float, happen: Callable[..., None], *arguments: Any) -> None:
        """Add an event; one in the past runs next."""
        self._added += 1
        heapq.heappush(self._heap, (max(time_s, self.now), self._added, happen, arguments))

    def run(self) -> None:
        """Run all events until none is left."""
        while self._heap:
            self.now, _, happen, arguments = heapq.heappop(self._heap)
            happen(*arguments)
