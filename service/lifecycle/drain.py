"""State of a drain after SIGTERM: its deadline, and the numbers of requests and results that missed it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

EXIT_DEVICE_LOST = 75
"""Exit status of a process that lost its GPU and should be restarted: EX_TEMPFAIL in sysexits.h."""
MIN_FLUSH_S = 5.0
"""Least time to write accepted results to the disk, in seconds, even if the requests used up the drain timeout."""


@dataclass(slots=True)
class Drain:
    """Progress of the drain; the process exits with status 0 only if the drain was clean."""

    timeout_s: float
    clock: Callable[[], float]
    announced: bool = False
    """Whether the first signal has arrived; the drain begins later, to give proxies time to notice."""
    began_at: float | None = None
    """Time on `clock` at which the drain began; None before."""
    forced: bool = False
    """Whether a second request to end has arrived: the server ends without waiting any longer."""
    cut: int = 0
    """Number of requests that were answered with 503 at the deadline."""
    unsaved: int = 0
    """Number of accepted results that did not reach the disk."""
    begun: asyncio.Future[None] | None = None
    """Future that is done when the drain begins, for tasks that must then stop waiting."""

    def begin(self) -> None:
        """Begin the drain; calling it again does nothing."""
        if self.began_at is None:
            self.began_at = self.clock()
            if self.begun is not None:
                self.begun.set_result(None)

    @property
    def waited_s(self) -> float:
        """Seconds since the drain began; 0 before."""
        return 0.0 if self.began_at is None else self.clock() - self.began_at

    @property
    def flush_s(self) -> float:
        """Seconds that the result store has left to flush."""
        return max(MIN_FLUSH_S, self.timeout_s - self.waited_s)

    @property
    def clean(self) -> bool:
        """Whether all requests were answered and all results saved."""
        return not self.cut and not self.unsaved
