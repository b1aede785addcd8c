"""The outcome of the requests of a simulation, and its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.harness.percentile import percentile
from benchmarks.scale.arrivals import FLOODER
from benchmarks.scale.node import Request


class Answer(NamedTuple):
    """One answered request."""

    arrived_at: float
    latency_s: float
    """Seconds since the client's first try."""
    client: str
    batch_size: int


@dataclass(slots=True)
class Outcome:
    """Counts and latencies; every offered request counts once, as answered or as unanswered."""

    offered: int = 0
    answers: list[Answer] = field(default_factory=list)
    unanswered: Counter[str] = field(default_factory=Counter)
    """Unanswered requests by the reason of their last try: refused, late, lost."""
    unanswered_of: Counter[str] = field(default_factory=Counter)
    """Number of unanswered requests, by client."""
    repeated: int = 0
    failures: int = 0
    seconds: float = 0.0
    """Time of the last arrival."""
    node_s: float = 0.0
    """Paid seconds of all nodes until the last arrival."""
    nodes_over_time: list[tuple[float, int]] = field(default_factory=list)

    def count_answer(self, request: Request, batch_size: int, now: float) -> None:
        """Count a request as answered."""
        self.answers.append(Answer(request.arrived_at, now - request.arrived_at, request.flow.client, batch_size))

    def count_unanswered(self, request: Request, why: str, _now: float) -> None:
        """Count a request whose client gave up."""
        self.unanswered[why] += 1
        self.unanswered_of[request.flow.client] += 1

    @property
    def per_s(self) -> float:
        """Answers per second."""
        return len(self.answers) / self.seconds if self.seconds else 0.0

    @property
    def unanswered_share(self) -> float:
        return sum(self.unanswered.values()) / self.offered if self.offered else 0.0

    @property
    def mean_batch(self) -> float:
        """Mean number of samples in a batch."""
        batches = sum(1.0 / answer.batch_size for answer in self.answers)
        return len(self.answers) / batches if batches else 0.0

    def latency_s(self, share: float, wanted: Callable[[Answer], bool] = lambda _: True) -> float:
        """Return a percentile of the latencies of the answers that are wanted."""
        return percentile([answer.latency_s for answer in self.answers if wanted(answer)], share)

    def cost_of_a_million(self, price_per_node_hour: float) -> float:
        """Return the price of the nodes for a million answers."""
        hours = self.node_s / 3600.0
        return hours * price_per_node_hour / len(self.answers) * 1e6 if self.answers else float("inf")

    def is_from_other_client(self, answer: Answer) -> bool:
        """Return whether an answer is for another client than the one that floods."""
        return answer.client != FLOODER

    def over_time(self, step_s: float) -> Iterator[tuple[float, float, float]]:
        """Yield for each time step its start, the answered requests per second that arrived in it, and their p99."""
        steps: dict[int, list[float]] = {}
        for answer in self.answers:
            steps.setdefault(int(answer.arrived_at / step_s), []).append(answer.latency_s)
        for step in sorted(steps):
            yield step * step_s, len(steps[step]) / step_s, percentile(steps[step], 0.99)

    def figures(self, price_per_node_hour: float) -> dict[str, float]:
        """Return the figures of the run, by name."""
        return {
            "offered": self.offered,
            "answered_per_s": self.per_s,
            "p50_ms": self.latency_s(0.5) * 1e3,
            "p99_ms": self.latency_s(0.99) * 1e3,
            "honest_p99_ms": self.latency_s(0.99, self.is_from_other_client) * 1e3,
            "unanswered_share": self.unanswered_share,
            "lost": self.unanswered["lost"],
            "repeated": self.repeated,
            "failures": self.failures,
            "mean_batch": self.mean_batch,
            "node_hours": self.node_s / 3600.0,
            "million_costs": self.cost_of_a_million(price_per_node_hour),
        }
