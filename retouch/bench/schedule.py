"""Due times of an open loop, computed from a random generator without reading a clock."""

from __future__ import annotations

import random


def poisson_due_times(rate_per_s: float, duration_s: float, rng: random.Random) -> list[float]:
    """Draw due times of a Poisson process: the arrivals of independent clients.

    Returns:
        Ascending seconds in [0, duration_s); about rate × duration of them.
    """
    due_times: list[float] = []
    due_s = rng.expovariate(rate_per_s)
    while due_s < duration_s:
        due_times.append(due_s)
        due_s += rng.expovariate(rate_per_s)
    return due_times
