"""Lag of the event loop, which delays requests that admission has not seen yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

MEASURE_EVERY_S = 0.01
LOOP_PASSES = 2
"""A request waits for the loop twice: when it arrives, and when it has been computed."""


@dataclass(slots=True)
class LoopLag:
    """Measures the lag as the delay of a timer: how late it fired last, or how overdue it is now."""

    clock: Callable[[], float]
    _due: float = float("inf")
    _late_s: float = 0.0
    """Delay of the timer when it fired last."""

    @property
    def wait_s(self) -> float:
        """Seconds that a request arriving now will wait for the event loop in total."""
        return LOOP_PASSES * max(self._late_s, self.clock() - self._due)

    async def watch(self) -> None:
        """Measure until cancelled."""
        try:
            while True:
                self._due = self.clock() + MEASURE_EVERY_S
                await asyncio.sleep(MEASURE_EVERY_S)
                self._late_s = max(0.0, self.clock() - self._due)
        finally:
            self._due, self._late_s = float("inf"), 0.0
