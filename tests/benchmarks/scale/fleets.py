"""Fleets and traffic for the simulator's tests."""

from __future__ import annotations

import random

from benchmarks.scale.arrivals import Traffic
from benchmarks.scale.outcome import Outcome
from benchmarks.scale.service_times import ServiceTimes
from benchmarks.scale.simulation import Fleet, Simulation
from tests.untraced import untraced

ONE_BY_ONE = ServiceTimes(batch_fixed_s=0.0, batch_each_s=0.1, max_batch=1)
"""Service times of 0.1 s a request, one at a time."""
BATCHES = ServiceTimes(0.03, 0.01, 8, host_before_s=0.002, host_after_s=0.002, host_cores=2)
"""Service times that allow up to 72 requests a second, in batches."""


@untraced
def simulated(fleet: Fleet, traffic: Traffic, seed: int = 1) -> Outcome:
    """Run the simulation to its last answer."""
    return Simulation(fleet, traffic.arrivals(random.Random(seed)), random.Random(seed + 1)).run()


def unlimited(times: ServiceTimes, nodes: int, **more: object) -> Fleet:
    """Return a fleet that refuses no request."""
    return Fleet(times, nodes, max_requests=100_000, deadline_s=1e6, **more)
