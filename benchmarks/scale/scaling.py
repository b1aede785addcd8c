"""How many nodes there should be: a rule on requests in flight, as an autoscaler of Kubernetes has. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Scaling:
    """Settings of the autoscaler.

    target: requests in flight for each node that it aims at.
    check_s: how often it looks. start_s: from the decision until a new node is ready; it is paid for from the decision.
    hold_s: nodes are given back only when fewer were enough for so long.
    """

    least: int
    most: int
    target: float
    check_s: float = 15.0
    start_s: float = 60.0
    hold_s: float = 300.0


@dataclass(slots=True)
class Autoscaler:
    """Decides; remembers the numbers that it wanted within `hold_s`."""

    scaling: Scaling
    _wanted: deque[tuple[float, int]] = field(default_factory=deque)

    def nodes(self, now: float, in_flight: int) -> int:
        """Return the number of nodes that there should be with so many requests in flight."""
        scaling = self.scaling
        wanted = min(scaling.most, max(scaling.least, math.ceil(in_flight / scaling.target)))
        self._wanted.append((now, wanted))
        while self._wanted[0][0] < now - scaling.hold_s:
            self._wanted.popleft()
        return max(number for _, number in self._wanted)


@dataclass(frozen=True, slots=True)
class Failures:
    """Nodes die or freeze, and others take their place.

    every_s: mean time between two failures of one node, exponential.
    frozen: share of failures in which the node goes on taking requests and answers none until it is noticed.
    notice_s: how long that takes. A dead node is noticed by the first request that it refuses, which goes elsewhere.
    replace_s: until a new node is ready.
    """

    every_s: float
    frozen: float = 0.2
    notice_s: float = 10.0
    replace_s: float = 60.0
