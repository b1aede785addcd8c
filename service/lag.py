"""How far the event loop is behind: what waits there has not been let in yet, and nobody else counts it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

LOOK_EVERY_S = 0.02
HOPS = 3
"""A request waits for the loop when its header comes, when its tile is computed, and when its reply is sent."""


@dataclass(slots=True)
class LoopLag:
    """Compares when it wanted to be woken with when it was."""

    clock: Callable[[], float]
    lag_s: float = 0.0
    """Of late, the longest first."""

    @property
    def wait_s(self) -> float:
        """What a request that comes now will have waited for the loop."""
        return HOPS * self.lag_s

    def observe(self, late_s: float) -> None:
        """It was woken so much too late."""
        self.lag_s = max(late_s, 0.7 * self.lag_s)

    async def watch(self) -> None:
        """Look, until cancelled."""
        while True:
            due = self.clock() + LOOK_EVERY_S
            await asyncio.sleep(LOOK_EVERY_S)
            self.observe(max(0.0, self.clock() - due))
