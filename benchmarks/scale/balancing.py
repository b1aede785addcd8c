"""Rules by which a balancer chooses a request's node, for the simulator and for the load generator of real nodes.

A balancer knows only the numbers of the nodes, the requests that it has sent to each, and their replies.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from hashlib import blake2b


class Balancing(ABC):
    """A rule with its state. `choose` and `ended` take constant time, except for model affinity."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._nodes: list[int] = []
        self._place: dict[int, int] = {}
        self.outstanding: dict[int, int] = {}
        """Number of requests sent to each node and not answered yet."""

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: int) -> None:
        """Send requests to this node from now on."""
        self._place[node] = len(self._nodes)
        self._nodes.append(node)
        self.outstanding[node] = 0
        self._changed(node, None)

    def remove(self, node: int) -> None:
        """Send no more requests to this node."""
        at, last = self._place.pop(node), self._nodes.pop()
        if last != node:
            self._nodes[at], self._place[last] = last, at
        self._removed(node, self.outstanding.pop(node))

    def choose(self, model: int = 0) -> int:
        """Choose the node of a request for this model, and count the request as sent; at least one node is needed."""
        node = self._pick(model)
        before = self.outstanding[node]
        self.outstanding[node] = before + 1
        self._changed(node, before)
        return node

    def ended(self, node: int) -> None:
        """Count a request of this node as answered or failed; does nothing if the node was removed."""
        if (before := self.outstanding.get(node)) is not None:
            self.outstanding[node] = before - 1
            self._changed(node, before)

    @abstractmethod
    def _pick(self, model: int) -> int: ...

    def _changed(self, node: int, before: int | None) -> None:  # noqa: B027 -- most rules need not know
        """Note that a node's outstanding requests changed; `before` is None for a new node."""

    def _removed(self, node: int, before: int) -> None:  # noqa: B027 -- as above
        """Note that a node left."""


class RandomNode(Balancing):
    """Any node, all equally likely."""

    def _pick(self, model: int) -> int:  # noqa: ARG002 -- not every rule asks for the model
        return self._nodes[int(self._rng.random() * len(self._nodes))]


class RoundRobin(Balancing):
    """The nodes in a fixed order, again and again."""

    _next = 0

    def _pick(self, model: int) -> int:  # noqa: ARG002 -- as above
        self._next = (self._next + 1) % len(self._nodes)
        return self._nodes[self._next]


class TwoChoices(Balancing):
    """The node with fewer requests of two that are drawn at random (Mitzenmacher 2001)."""

    def _pick(self, model: int) -> int:  # noqa: ARG002 -- as above
        count = len(self._nodes)
        one, other = (self._nodes[int(self._rng.random() * count)] for _ in range(2))
        return one if self.outstanding[one] <= self.outstanding[other] else other


class LeastRequests(Balancing):
    """The node with the fewest requests; of several, the one that has had this number for the longest time."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._by_count: list[dict[int, None]] = [{}]

    def _pick(self, model: int) -> int:  # noqa: ARG002 -- as above
        return next(iter(next(filter(None, self._by_count))))

    def _changed(self, node: int, before: int | None) -> None:
        if before is not None:
            del self._by_count[before][node]
        now = self.outstanding[node]
        while len(self._by_count) <= now:
            self._by_count.append({})
        self._by_count[now][node] = None

    def _removed(self, node: int, before: int) -> None:
        del self._by_count[before][node]


class ModelAffinity(Balancing):
    """The first node in the model's own order (rendezvous hashing) whose load is at most a quarter above the mean.

    A model's requests go to few nodes, so that they share batches; the bound keeps a popular model from overloading a
    node (Mirrokni, Thorup, Zadimoghaddam: "Consistent hashing with bounded loads", 2018).
    """

    _BOUND = 1.25

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._orders: dict[int, list[int]] = {}
        self._sum = 0

    def _pick(self, model: int) -> int:
        if model not in self._orders:
            self._orders[model] = sorted(self._nodes, key=lambda node: _rank(model, node))
        max_load = math.ceil(self._BOUND * (self._sum + 1) / len(self._nodes))
        return next(node for node in self._orders[model] if self.outstanding[node] < max_load)

    def _changed(self, node: int, before: int | None) -> None:
        if before is None:
            self._orders.clear()
        self._sum += self.outstanding[node] - (before or 0)

    def _removed(self, node: int, before: int) -> None:  # noqa: ARG002 -- as above
        self._orders.clear()
        self._sum -= before


def _rank(model: int, node: int) -> bytes:
    return blake2b(f"{model} {node}".encode(), digest_size=8).digest()


BALANCINGS: dict[str, Callable[[random.Random], Balancing]] = {
    "random": RandomNode,
    "round robin": RoundRobin,
    "two choices": TwoChoices,
    "least requests": LeastRequests,
    "model affinity": ModelAffinity,
}
