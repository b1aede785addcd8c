"""How far the event loop is behind: what waits there has not been let in yet, and nobody else counts it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

LOOK_EVERY_S = 0.01
HOPS = 2
"""A request waits for the loop when it comes, and again when it has been computed."""


@dataclass(slots=True)
class LoopLag:
    """Compares when it wanted to be woken with when it was, or with the time if it still waits."""

    clock: Callable[[], float]
    _due: float = float("inf")
    _late_s: float = 0.0
    """The last time that it was woken."""

    @property
    def wait_s(self) -> float:
        """What a request that comes now will have waited for the loop until it is answered."""
        return HOPS * max(self._late_s, self.clock() - self._due)

    async def watch(self) -> None:
        """Look, until cancelled."""
        try:
            while True:
                self._due = self.clock() + LOOK_EVERY_S
                await asyncio.sleep(LOOK_EVERY_S)
                self._late_s = max(0.0, self.clock() - self._due)
        finally:
            self._due, self._late_s = float("inf"), 0.0
