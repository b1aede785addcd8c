"""The number of nodes that a fleet should have, by requests in flight, as Kubernetes' autoscaler decides. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Scaling:
    """Settings of the autoscaler.

    target: wanted requests in flight for each node.
    check_s: interval between decisions. start_s: from the decision, when payment starts, until a new node is ready.
    hold_s: nodes are removed only after fewer would have sufficed for this time.
    """

    min_nodes: int
    max_nodes: int
    target: float
    check_s: float = 15.0
    start_s: float = 60.0
    hold_s: float = 300.0


@dataclass(slots=True)
class Autoscaler:
    """Decides on the number of nodes; remembers the numbers of the last `hold_s`."""

    scaling: Scaling
    _wanted: deque[tuple[float, int]] = field(default_factory=deque)

    def nodes(self, now: float, in_flight: int) -> int:
        """Return the number of nodes for that number of requests in flight."""
        scaling = self.scaling
        wanted = min(scaling.max_nodes, max(scaling.min_nodes, math.ceil(in_flight / scaling.target)))
        self._wanted.append((now, wanted))
        while self._wanted[0][0] < now - scaling.hold_s:
            self._wanted.popleft()
        return max(number for _, number in self._wanted)


@dataclass(frozen=True, slots=True)
class Failures:
    """Settings of failures: nodes die or freeze, and new ones replace them.

    every_s: mean time between two failures of one node; the times are exponentially distributed.
    frozen: share of failures in which the node still accepts requests, but answers none until it is detected.
    notice_s: time until a frozen node is detected. A dead one is detected by the first request that it refuses, which
        goes to another node.
    replace_s: time until a new node is ready.
    """

    every_s: float
    frozen: float = 0.2
    notice_s: float = 10.0
    replace_s: float = 60.0
