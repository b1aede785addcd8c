"""The end of a server: one deadline for everything that SIGTERM asks for, and what did not make it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

EXIT_DEVICE_LOST = 75
"""The process's exit status when it lost its GPU: EX_TEMPFAIL of sysexits.h, start it again."""
FLUSH_AT_LEAST_S = 5.0
"""Results that are accepted are given this long to reach the disk, even if the requests took all the time."""


@dataclass(slots=True)
class Drain:
    """How far the end has come; the process exits with 0 only if it was clean."""

    timeout_s: float
    clock: Callable[[], float]
    announced: bool = False
    """Whether the first signal came; the drain begins when proxies have had time to see it."""
    began_at: float | None = None
    cut: int = 0
    """Requests that were answered 503 because the time was over."""
    unsaved: int = 0
    """Results that were accepted and did not reach the disk."""
    begun: asyncio.Future[None] | None = None
    """Done once the drain begins, for those who must not wait any longer then."""

    def begin(self) -> None:
        """Nothing new is taken from now on."""
        if self.began_at is None:
            self.began_at = self.clock()
            if self.begun is not None:
                self.begun.set_result(None)

    @property
    def waited_s(self) -> float:
        """Seconds since the drain began; 0 before it."""
        return 0.0 if self.began_at is None else self.clock() - self.began_at

    @property
    def flush_s(self) -> float:
        """How long the store may take now."""
        return max(FLUSH_AT_LEAST_S, self.timeout_s - self.waited_s)

    @property
    def clean(self) -> bool:
        """Whether everyone was answered and everything saved."""
        return not self.cut and not self.unsaved
