"""State of a drain after SIGTERM: its deadline, and the requests and results that missed it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

EXIT_DEVICE_LOST = 75
"""Exit status of a process that lost its GPU and should be restarted: EX_TEMPFAIL of sysexits.h."""
FLUSH_AT_LEAST_S = 5.0
"""Seconds that accepted results get to reach the disk, even if the requests used up the drain timeout."""


@dataclass(slots=True)
class Drain:
    """Progress of the drain; the process exits with 0 only if it was clean."""

    timeout_s: float
    clock: Callable[[], float]
    announced: bool = False
    """Whether the first signal has come; the drain begins later, when proxies have noticed."""
    began_at: float | None = None
    forced: bool = False
    """Whether a second request to end has come: nothing is waited for any more."""
    cut: int = 0
    """Requests that were answered with 503 at the deadline."""
    unsaved: int = 0
    """Accepted results that did not reach the disk."""
    begun: asyncio.Future[None] | None = None
    """A future that is done when the drain begins, for tasks that must stop waiting then."""

    def begin(self) -> None:
        """Begin the drain; calling it again does nothing."""
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
        """Seconds that the result store has left to flush."""
        return max(FLUSH_AT_LEAST_S, self.timeout_s - self.waited_s)

    @property
    def clean(self) -> bool:
        """Whether all requests were answered and all results saved."""
        return not self.cut and not self.unsaved
