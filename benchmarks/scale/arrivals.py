"""Arrival traces: time, client and model of each request, with waves, bursts, and a client that floods the fleet."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

FLOODER = "flooder"
"""Name of the client that floods."""


class Arrival(NamedTuple):
    """One request."""

    at_s: float
    client: str
    model: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of independent clients: a Poisson process whose rate may change.

    base_per_s: the mean rate of all honest clients together; with a wave, its mean over a day.
    wave: amplitude of the daily wave, 0 to 1; the day begins with its lowest rate.
    day_s: length of a day; a shorter one makes scaling harder.
    bursts: (begin_s, end_s, factor): the rate is multiplied by the factor within that span.
    flood: (begin_s, end_s, per_s): rate of one more client within that span.
    """

    base_per_s: float
    seconds: float
    clients: int = 50
    models: int = 1
    wave: float = 0.0
    day_s: float = 86_400.0
    bursts: Sequence[tuple[float, float, float]] = ()
    flood: tuple[float, float, float] | None = None

    def rate_per_s(self, at_s: float) -> float:
        """Return the honest clients' rate at a time."""
        rate = self.base_per_s * (1.0 - self.wave * math.cos(2.0 * math.pi * at_s / self.day_s))
        for begin_s, end_s, times in self.bursts:
            if begin_s <= at_s < end_s:
                rate *= times
        return rate

    def arrivals(self, rng: random.Random) -> Iterator[Arrival]:
        """Draw all arrivals in the order of their times."""
        highest_per_s = self.base_per_s * (1.0 + self.wave) * math.prod(max(1.0, times) for *_, times in self.bursts)
        names = [f"client {number}" for number in range(self.clients)]
        shares = list(accumulate(1.0 / (rank + 1) for rank in range(self.models)))
        honest = (
            Arrival(at_s, rng.choice(names), _draw(shares, rng))
            for at_s in _poisson(highest_per_s, 0.0, self.seconds, rng)
            if rng.random() * highest_per_s < self.rate_per_s(at_s)
        )
        if self.flood is None:
            return honest
        begin_s, end_s, per_s = self.flood
        other = random.Random(rng.random())
        flood = (Arrival(at_s, FLOODER) for at_s in _poisson(per_s, begin_s, end_s, other))
        return heapq.merge(honest, flood)


def _poisson(per_s: float, begin_s: float, end_s: float, rng: random.Random) -> Iterator[float]:
    at_s = begin_s + rng.expovariate(per_s)
    while at_s < end_s:
        yield at_s
        at_s += rng.expovariate(per_s)


def _draw(cumulative: Sequence[float], rng: random.Random) -> int:
    """Draw an index by cumulative weights; models' popularity follows Zipf's law, like that of files and web pages."""
    if len(cumulative) == 1:
        return 0
    drawn = rng.random() * cumulative[-1]
    return next(index for index, upto in enumerate(cumulative) if drawn < upto)
