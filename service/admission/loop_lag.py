"""Lag of the event loop, which delays requests that admission has not seen yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

MEASURE_INTERVAL_S = 0.01
LOOP_PASSES = 2
"""A request waits for the loop twice: when it arrives, and when it has been computed."""
_MAX_UNREAD = 5
"""Measurements that may go unread before measuring pauses; they would be most of an idle server's work."""


@dataclass(slots=True)
class LoopLag:
    """Measures the lag as the delay of a timer: how late it fired last, or how overdue it is now.

    It pauses while `wait_s` is not read; the first read after a pause returns 0 and resumes measuring.
    """

    clock: Callable[[], float]
    _due: float = float("inf")
    _late_s: float = 0.0
    """Delay of the timer when it fired last."""
    _unread: int = 0
    """Measurements since `wait_s` was last read."""
    _paused: asyncio.Future[None] | None = None
    """Ends the pause; None while it measures."""

    @property
    def wait_s(self) -> float:
        """Seconds that a request arriving now will wait for the event loop in total."""
        self._unread = 0
        if self._paused is not None:
            self._end_pause(self._paused)
        return LOOP_PASSES * max(self._late_s, self.clock() - self._due)

    async def watch(self) -> None:
        """Measure until cancelled."""
        try:
            while True:
                self._due = self.clock() + MEASURE_INTERVAL_S
                await asyncio.sleep(MEASURE_INTERVAL_S)
                self._late_s = max(0.0, self.clock() - self._due)
                self._unread += 1
                if self._unread > _MAX_UNREAD:
                    await self._pause()
        finally:
            self._due, self._late_s, self._paused = float("inf"), 0.0, None

    async def _pause(self) -> None:
        self._due, self._late_s = float("inf"), 0.0
        self._paused = asyncio.get_running_loop().create_future()
        await self._paused
        self._late_s = max(0.0, self.clock() - self._due)

    def _end_pause(self, paused: asyncio.Future[None]) -> None:
        self._paused, self._due = None, self.clock() + MEASURE_INTERVAL_S
        if not paused.done():
            paused.set_result(None)
