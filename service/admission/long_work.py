"""Admission of long work on codec threads: a request whose work would end after its deadline is refused.

The amount of work is known before it begins; the time that a unit takes is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from service.admission.late_answer import late_answer_error
from service.core.call import Call

_DECAY = 0.9
"""Factor on earlier measurements at each new piece of work: about the last ten count."""


@dataclass(slots=True)
class LongWork:
    """Pieces of long work, in units that each take the same time. Used on the event loop only."""

    threads: int
    clock: Callable[[], float]
    """Returns seconds; deadlines are on this clock."""
    pending: int = 0
    """Units of work that are not done."""
    _work: float = 0.0
    _seconds: float = 0.0
    """Decaying sums over finished work: units, and seconds."""

    @contextmanager
    def count(self, call: Call, work: int, pieces: int = 1) -> Iterator[None]:
        """Count pieces of equal work as pending, for the length of the block.

        Args:
            call: the request, with its deadline.
            work: units of each piece.
            pieces: how many can run in parallel.

        Raises:
            DeadlineExceeded: on entering the block: the pieces would end after the client's own deadline.
            Overloaded: the same for the server's deadline.
        """
        answer_s, left_s = self.predicted_s(work, pieces), call.deadline - self.clock()
        if self.pending and answer_s > left_s:  # alone it always runs, so that a wrong prediction can be corrected
            retry_after_s = answer_s - (call.deadline - call.received_at)
            reason, remedy = "the queue for texture is long", ", or request no texture"
            raise late_answer_error(
                reason, answer_s, left_s, retry_after_s, deadline_from_client=call.deadline_from_client, remedy=remedy
            )
        self.pending += work * pieces
        try:
            yield
        finally:
            self.pending -= work * pieces

    def predicted_s(self, work: int, pieces: int = 1) -> float:
        """Predicted seconds until these pieces would be done, after all pending work; 0 until some work was done."""
        if not self._work:
            return 0.0
        own = max(work, work * pieces / self.threads)
        return (self.pending / self.threads + own) * self._seconds / self._work

    def learn(self, work: int, seconds: float) -> None:
        """Learn how long a piece of work took on its thread."""
        self._work, self._seconds = self._work * _DECAY + work, self._seconds * _DECAY + seconds
