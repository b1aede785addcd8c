"""Whose turn it is: clients share the engine evenly, and a higher priority gets a larger share. Pure.

Start-time fair queuing (Goyal, Vin, Cheng: "Start-time Fair Queuing", IEEE/ACM Trans. Networking 5(5), 1997). A flow is
one client at one priority. While it has nothing waiting it loses nothing, so a lone request of a quiet client comes
before the hundreds of a busy one; and as every share is greater than zero, no priority is starved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from service.core.flow import Flow


class Turn(NamedTuple):
    """Position in the order of service: the smallest is next."""

    start: float
    lower: int
    """Of two that may start together, the higher priority is first."""
    number: int


FIRST = Turn(0.0, 0, 0)


@dataclass(slots=True)
class FairOrder:
    """Hands out turns. `begin` must be told whose turn has come, so that who was idle cannot save up a claim."""

    _now: float = 0.0
    """Virtual time: the start of the last turn that came."""
    _number: int = 0
    _ends: dict[Flow, float] = field(default_factory=dict)

    def next(self, flow: Flow, cost: float = 1.0) -> Turn:
        """The turn of a request that arrives now, and takes so much of what is shared."""
        start = max(self._now, self._ends.get(flow, 0.0))
        self._ends[flow] = start + cost / flow.weight
        self._number += 1
        return Turn(start, -flow.priority, self._number)

    def forgive(self, flow: Flow, cost: float = 1.0) -> None:
        """A turn of that flow will not be taken: its next request does not pay for it."""
        if flow in self._ends:
            self._ends[flow] -= cost / flow.weight

    def begin(self, turn: Turn) -> None:
        """That turn has come."""
        if turn.start > self._now:
            self._now = turn.start
            if len(self._ends) > 1024:  # only flows whose last turn is still to come matter
                self._ends = {flow: end for flow, end in self._ends.items() if end > self._now}


def ahead(flow: Flow, waiting: Mapping[Flow, int]) -> float:
    """How many of the waiting requests are served before one that this flow sends now."""
    own = waiting.get(flow, 0)
    if len(waiting) == (1 if own else 0):
        return own
    turns = (own + 1) / flow.weight
    return own + sum(min(count, turns * other.weight) for other, count in waiting.items() if other != flow)
