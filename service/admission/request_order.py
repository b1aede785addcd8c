"""Fair order of service: clients share the engine evenly, and a higher priority gets a larger share. Pure.

Start-time fair queuing (Goyal, Vin, Cheng: "Start-time Fair Queuing", IEEE/ACM Trans. Networking 5(5), 1997). A flow is
one client at one priority. A lone request of a quiet client comes before the hundreds that a busy one has queued, and
no priority is starved, because every share is greater than zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from service.core.flow import Flow


class QueuePosition(NamedTuple):
    """Position in the order of service: the smallest is next."""

    start: float
    """Virtual start time."""
    negated_priority: int
    """Negative priority: of two requests with the same start, the one with the higher priority is first."""
    arrival_number: int
    """Order of arrival."""


FIRST_POSITION = QueuePosition(0.0, 0, 0)


@dataclass(slots=True)
class FairScheduler:
    """Assigns positions in the order of service.

    `start` must be called for each request that starts, or idle flows would save up claims to service.
    """

    _now: float = 0.0
    """Virtual time: the start of the last request that was started."""
    _arrivals: int = 0
    _ends: dict[Flow, float] = field(default_factory=dict)
    """Virtual time at which each flow's last request ends."""

    def assign(self, flow: Flow, cost: float = 1.0) -> QueuePosition:
        """Assign a position to a request that arrives now and uses `cost` of the shared resource."""
        start = max(self._now, self._ends.get(flow, 0.0))
        self._ends[flow] = start + cost / flow.weight
        self._arrivals += 1
        return QueuePosition(start, -flow.priority, self._arrivals)

    def refund(self, flow: Flow, cost: float = 1.0) -> None:
        """Take back the cost of a request of this flow that was withdrawn."""
        if flow in self._ends:
            self._ends[flow] -= cost / flow.weight

    def start(self, position: QueuePosition) -> None:
        """Advance the virtual time to a request that starts."""
        if position.start > self._now:
            self._now = position.start
            if len(self._ends) > 1024:  # only flows with requests still to start matter
                self._ends = {flow: end for flow, end in self._ends.items() if end > self._now}


def requests_ahead(flow: Flow, waiting: Mapping[Flow, int]) -> float:
    """The number of waiting requests that are served before a new request of this flow."""
    own = waiting.get(flow, 0)
    if len(waiting) == (1 if own else 0):
        return own
    own_share = (own + 1) / flow.weight
    return own + sum(min(count, own_share * other.weight) for other, count in waiting.items() if other != flow)
