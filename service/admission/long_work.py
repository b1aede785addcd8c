"""Long work that waits for codec threads or runs on them: a request that would get its turn too late is refused.

How much work a piece is, is known before it begins; how long a unit takes is learned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.core.call import Call
from service.core.errors import DeadlineExceeded, Overloaded, ServiceError

_DECAY = 0.9
"""Decay of what was learned with each new piece of work: about the last ten count."""


@dataclass(slots=True)
class LongWork:
    """Pieces of long work, in units to which their seconds are proportional. Used on the event loop only."""

    threads: int
    clock: Callable[[], float]
    """Returns seconds; deadlines are on this clock."""
    pending: int = 0
    """Work that is not done."""
    _work: float = 0.0
    _seconds: float = 0.0
    """Decaying sums over what was done."""

    @contextmanager
    def count(self, call: Call, work: int, pieces: int = 1) -> Iterator[None]:
        """Count pieces of equal work as pending, for the length of the block.

        Raises:
            DeadlineExceeded: on entering: behind what is pending, they would be done after the client's own deadline.
            Overloaded: the same for the server's deadline.
        """
        answer_s, left_s = self.predicted_s(work, pieces), call.deadline - self.clock()
        if self.pending and answer_s > left_s:  # without others it is begun whatever was learned: learning goes on
            raise _too_late_error(answer_s, left_s, call)
        self.pending += work * pieces
        try:
            yield
        finally:
            self.pending -= work * pieces

    def predicted_s(self, work: int, pieces: int = 1) -> float:
        """Predicted seconds until so many pieces would be done; 0 until some work was done."""
        if not self._work:
            return 0.0
        own = max(work, work * pieces / self.threads)
        return (self.pending / self.threads + own) * self._seconds / self._work

    def learn(self, work: int, seconds: float) -> None:
        """Learn how long a piece of work took on its thread."""
        self._work, self._seconds = self._work * _DECAY + work, self._seconds * _DECAY + seconds


def _too_late_error(answer_s: float, left_s: float, call: Call) -> ServiceError:
    pause_s = max(1, math.ceil(answer_s - (call.deadline - call.received_at)))
    message = (
        f"others wait for texture: the answer would take {answer_s:.1f} s and {max(0.0, left_s):.1f} s are left; come "
        f"back in {pause_s} s, or ask for none"
    )
    if call.own_deadline:
        return DeadlineExceeded(f"{message}, or allow more", retry_after_s=pause_s)
    return Overloaded(message, retry_after_s=pause_s)
