"""Three times the load that the engine can compute, in virtual time: the real admission, the rest simulated."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from service.admission.admission import Admission, AdmissionRequest
from service.admission.service_rate import ServiceRate
from service.core.errors import ServiceError
from service.core.flow import Flow

pytestmark = pytest.mark.slow

FULL = 8


@dataclass
class Simulation:
    """Poisson arrivals, an engine with batches of up to eight, and clients that return after Retry-After."""

    batch_s: float
    each_s: float
    deadline_s: float
    obey: bool = True
    seconds: float = 40.0
    overload: float = 3.0
    now: float = 1000.0
    random: random.Random = field(default_factory=lambda: random.Random(1))
    events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)
    number: count[int] = field(default_factory=count)
    queue: list[tuple[float, AbstractContextManager[Any]]] = field(default_factory=list)
    busy: bool = False
    latencies: list[float] = field(default_factory=list)
    good: int = 0
    obeyed: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admission = Admission(256, clock=lambda: self.now, service_rate=ServiceRate(FULL))
        self.end = self.now + self.seconds

    @property
    def capacity(self) -> float:
        return FULL / (self.batch_s + FULL * self.each_s)

    def run(self) -> Simulation:
        at = self.now
        while (at := at + self.random.expovariate(self.overload * self.capacity)) < self.end:
            self.schedule(at, self.arrive, str(next(self.number)), False)
        while self.events:
            self.now, _, happen, arguments = heapq.heappop(self.events)
            happen(*arguments)
        return self

    def schedule(self, at: float, happen: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self.events, (at, next(self.number), happen, arguments))

    def arrive(self, request_id: str, again: bool) -> None:
        entered = self.admission.admit(AdmissionRequest(self.deadline_s, True, Flow("all"), request_id))
        try:
            place = entered.__enter__()
        except ServiceError as refusal:
            if again:
                self.obeyed.append(False)
            elif self.obey:
                self.schedule(self.now + (refusal.retry_after_s or 0.0), self.arrive, request_id, True)
            return
        if again:
            self.obeyed.append(True)
        self.admission.count_in_flight(place)
        self.queue.append((self.now, entered))
        self.form()

    def form(self) -> None:
        if not self.busy and self.queue:
            batch, self.queue, self.busy = self.queue[:FULL], self.queue[FULL:], True
            took_s = (self.batch_s + self.each_s * len(batch)) * self.random.uniform(0.7, 1.3)
            self.schedule(self.now + took_s, self.answer, batch, took_s)

    def answer(self, batch: list[tuple[float, AbstractContextManager[Any]]], took_s: float) -> None:
        self.busy = False
        for arrived_at, entered in batch:
            self.admission.service_rate.add_measurement([(len(batch), took_s)], took_s)
            entered.__exit__(None, None, None)
            self.latencies.append(self.now - arrived_at)
            self.good += self.now - arrived_at <= self.deadline_s and self.now <= self.end
        self.form()


LOADS = [
    pytest.param(0.008, 0.0, 0.5, id="8 ms a batch, half a second allowed"),
    pytest.param(0.0, 0.055, 5.0, id="18 a second, 5 s allowed"),
    pytest.param(0.0, 0.055, 2.0, id="18 a second, 2 s allowed"),
    pytest.param(0.0, 0.14, 60.0, id="7 a second, a minute allowed: the number of requests is the limit"),
]


@pytest.mark.parametrize(("batch_s", "each_s", "deadline_s"), LOADS)
@pytest.mark.parametrize("obey", [True, False], ids=["they come back", "nobody comes back"])
def test_the_engine_stays_busy_and_who_is_let_in_is_answered_in_time(
    batch_s: float, each_s: float, deadline_s: float, obey: bool
) -> None:
    seconds = 10.0 if each_s == 0 else 60.0
    ran = Simulation(batch_s, each_s, deadline_s, obey, seconds).run()
    assert ran.good / (ran.capacity * seconds) >= 0.95
    ran.latencies.sort()
    assert ran.latencies[int(len(ran.latencies) * 0.99)] <= deadline_s
    assert ran.admission.in_flight == 0


@pytest.mark.parametrize(("batch_s", "each_s", "deadline_s"), LOADS)
def test_who_comes_back_when_told_to_is_let_in(batch_s: float, each_s: float, deadline_s: float) -> None:
    ran = Simulation(batch_s, each_s, deadline_s, True, 10.0 if each_s == 0 else 60.0).run()
    assert len(ran.obeyed) > 100
    assert sum(ran.obeyed) / len(ran.obeyed) >= 0.9
