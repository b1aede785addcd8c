"""When requests are due. Pure: the randomness comes in, and no clock is read."""

from __future__ import annotations

import random


def poisson_due_times(rate_per_s: float, duration_s: float, rng: random.Random) -> list[float]:
    """Arrivals of clients that know nothing of each other: a Poisson process.

    Returns:
        Ascending seconds in [0, duration_s); about rate × duration of them.
    """
    due_times: list[float] = []
    due_s = rng.expovariate(rate_per_s)
    while due_s < duration_s:
        due_times.append(due_s)
        due_s += rng.expovariate(rate_per_s)
    return due_times
