"""Lag of the event loop, which delays requests that admission has not seen yet."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

MEASURE_EVERY_S = 0.01
LOOP_PASSES = 2
"""A request waits for the loop twice: when it arrives, and when it has been computed."""


@dataclass(slots=True)
class LoopLag:
    """Measures the lag as the delay of a timer: how late it fired last, or how overdue it is now.

    The timer runs while it is asked for, as waking a process a hundred times a second costs it 0.7 % of a core. Used on
    the event loop.
    """

    clock: Callable[[], float]
    _due: float = math.inf
    """When the timer should fire; infinite while it does not run."""
    _late_s: float = 0.0
    """Delay of the timer when it fired last."""
    _asked: bool = False
    """Whether `wait_s` was called since the timer was set."""

    def wait_s(self) -> float:
        """Return the seconds that a request arriving now will wait for the event loop in total."""
        self._asked = True
        if self._due == math.inf:
            self._set_timer()
        return LOOP_PASSES * max(self._late_s, self.clock() - self._due)

    def _set_timer(self) -> None:
        self._asked, self._due = False, self.clock() + MEASURE_EVERY_S
        asyncio.get_running_loop().call_later(MEASURE_EVERY_S, self._measure)

    def _measure(self) -> None:
        self._late_s = max(0.0, self.clock() - self._due)
        if self._asked or self._late_s >= MEASURE_EVERY_S:  # what arrived while the loop was blocked has yet to ask
            self._set_timer()
        else:
            self._due, self._late_s = math.inf, 0.0
