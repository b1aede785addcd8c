"""A fleet in virtual time: proxies choose nodes, nodes admit and compute, clients retry, nodes fail and scale."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.scale.arrivals import Arrival
from benchmarks.scale.balancing import BALANCINGS, Balancing
from benchmarks.scale.events import Events
from benchmarks.scale.node import Node, Request, Visit
from benchmarks.scale.outcome import Outcome
from benchmarks.scale.scaling import Autoscaler, Failures, Scaling
from benchmarks.scale.service_times import ServiceTimes
from service.core.errors import ServiceError
from service.core.flow import Flow

_LOST_PAUSE_S = 1.0
"""Seconds after which a client repeats a request whose node was lost."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The fleet that is simulated.

    proxies: number of proxies; each balances independently and knows only its own requests.
    uneven: maximum share by which a node's times exceed the measured ones; each node's is uniformly distributed.
    deadline_s: deadline that clients set; None for the server's default of 60 s.
    repeats: number of times that a client repeats a request that was refused (after Retry-After, with its id) or lost.
    """

    times: ServiceTimes
    nodes: int
    balancing: str = "least requests"
    proxies: int = 1
    uneven: float = 0.0
    max_requests: int = 256
    deadline_s: float | None = None
    repeats: int = 0
    scaling: Scaling | None = None
    failures: Failures | None = None


@dataclass(slots=True)
class Simulation:
    """One run of the simulation; `run` may be called only once."""

    fleet: Fleet
    arrivals: Iterator[Arrival]
    rng: random.Random
    events: Events = field(default_factory=Events)
    outcome: Outcome = field(default_factory=Outcome)
    nodes: dict[int, Node] = field(default_factory=dict)
    """Nodes that get requests, including frozen ones that are not detected yet."""
    _proxies: list[Balancing] = field(init=False)
    _autoscaler: Autoscaler | None = None
    _created: int = 0
    _starting: int = 0
    _paid: dict[int, float] = field(default_factory=dict)
    """Time from which each node is paid for."""
    _in_flight: int = 0
    _open: bool = True
    """Whether requests still arrive; failures and scaling end with them."""

    def __post_init__(self) -> None:
        rule = BALANCINGS[self.fleet.balancing]
        self._proxies = [rule(random.Random(self.rng.random())) for _ in range(self.fleet.proxies)]
        for _ in range(self.fleet.nodes):
            self._add_node(0.0)
        if self.fleet.scaling is not None:
            self._autoscaler = Autoscaler(self.fleet.scaling)
            self.events.at(self.fleet.scaling.check_s, self._scale)

    def run(self) -> Outcome:
        """Run until the last answer."""
        self._next_arrival()
        self.events.run()
        return self.outcome

    def _next_arrival(self) -> None:
        arrival = next(self.arrivals, None)
        if arrival is None:
            self._close()
        else:
            self.events.at(arrival.at_s, self._arrive, arrival)

    def _close(self) -> None:
        self._open = False
        self.outcome.seconds = self.events.now
        for number in list(self._paid):
            self._stop_paying(number)

    def _arrive(self, arrival: Arrival) -> None:
        self.outcome.offered += 1
        allowed_s = self.fleet.deadline_s or 60.0
        request_id = str(self.outcome.offered)
        flow = Flow(arrival.client)
        own = self.fleet.deadline_s is not None
        self._send(Request(flow, arrival.model, arrival.at_s, allowed_s, own, request_id))
        self._next_arrival()

    def _send(self, request: Request) -> None:
        request.attempts += 1
        number = int(self.rng.random() * len(self._proxies)) if len(self._proxies) > 1 else 0
        proxy = self._proxies[number]
        if not len(proxy):
            self._repeat(request, _LOST_PAUSE_S, "lost")
            return
        node = self.nodes[proxy.choose(request.model)]
        try:
            node.take(request, number)
        except ServiceError as refusal:
            proxy.ended(node.number)
            self._repeat(request, refusal.retry_after_s or _LOST_PAUSE_S, "refused")
        else:
            self._in_flight += 1

    def _repeat(self, request: Request, pause_s: float, why: str) -> None:
        """Let the client retry, or give up."""
        if request.attempts <= self.fleet.repeats:
            self.outcome.repeated += 1
            self.events.at(self.events.now + pause_s, self._send, request)
        else:
            self.outcome.count_unanswered(request, why, self.events.now)

    def _answered(self, node: Node, visit: Visit, in_time: bool) -> None:
        self._in_flight -= 1
        self._proxies[visit.proxy].ended(node.number)
        if in_time:
            self.outcome.count_answer(visit.request, visit.batch_size, self.events.now)
        else:
            self.outcome.count_unanswered(visit.request, "late", self.events.now)
        if node.number not in self.nodes and not node.visits:
            self._stop_paying(node.number)

    def _add_node(self, paid_since: float) -> None:
        self._created += 1
        number = self._created
        self.nodes[number] = Node(
            number,
            self.fleet.times.slower(1.0 + self.fleet.uneven * self.rng.random()),
            self.events,
            self._answered,
            max_requests=self.fleet.max_requests,
        )
        self._paid.setdefault(number, paid_since)
        for proxy in self._proxies:
            proxy.add(number)
        if self.fleet.failures is not None:
            dies_in_s = self.rng.expovariate(1.0 / self.fleet.failures.every_s)
            self.events.at(self.events.now + dies_in_s, self._fail, number)
        self._note_nodes()

    def _note_nodes(self) -> None:
        self.outcome.nodes_over_time.append((self.events.now, len(self.nodes)))

    def _remove_node(self, number: int) -> Node:
        node = self.nodes.pop(number)
        for proxy in self._proxies:
            proxy.remove(number)
        self._note_nodes()
        return node

    def _stop_paying(self, number: int) -> None:
        if (since := self._paid.pop(number, None)) is not None:
            self.outcome.node_s += self.events.now - since

    def _fail(self, number: int) -> None:
        failures = self.fleet.failures
        if number not in self.nodes or not self._open or failures is None:
            return
        self.outcome.failures += 1
        self.nodes[number].lost = True
        notice_s = failures.notice_s if self.rng.random() < failures.frozen else 0.0
        self.events.at(self.events.now + notice_s, self._bury, number)

    def _bury(self, number: int) -> None:
        """Remove a failed node; its requests are lost, and another node starts."""
        if number not in self.nodes:
            return
        node = self._remove_node(number)
        self._stop_paying(number)
        for visit in node.visits:
            self._in_flight -= 1
            self._repeat(visit.request, _LOST_PAUSE_S, "lost")
        if self._open and self.fleet.failures is not None:
            self._start_node(self.fleet.failures.replace_s)

    def _start_node(self, seconds: float) -> None:
        self._starting += 1
        self.events.at(self.events.now + seconds, self._node_started, self.events.now)

    def _node_started(self, paid_since: float) -> None:
        self._starting -= 1
        if self._open:
            self._add_node(paid_since)

    def _scale(self) -> None:
        if self._autoscaler is None or not self._open:
            return
        scaling = self._autoscaler.scaling
        wanted = self._autoscaler.nodes(self.events.now, self._in_flight)
        for _ in range(wanted - len(self.nodes) - self._starting):
            self._start_node(scaling.start_s)
        healthy = [number for number, node in self.nodes.items() if not node.lost]
        for number in healthy[: max(0, len(self.nodes) + self._starting - wanted)][: max(0, len(healthy) - 1)]:
            if not self._remove_node(number).visits:  # a node with requests answers them first
                self._stop_paying(number)
        self.events.at(self.events.now + scaling.check_s, self._scale)
