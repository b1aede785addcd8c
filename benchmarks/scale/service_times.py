"""Measured service times of a node: of a batch and of the host's work, and the machine on which they were measured."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

_FILE = Path(__file__).with_name("service_times.json")


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Times of one node; a batch of n takes `batch_fixed_s` + n · `batch_each_s`."""

    batch_fixed_s: float
    batch_each_s: float
    max_batch: int
    between_batches_s: float = 0.0
    """Seconds from the end of a batch to the start of the next, in which the device is idle."""
    host_before_s: float = 0.0
    """Seconds of one core for a request before its batch: HTTP, decoding."""
    host_after_s: float = 0.0
    """Seconds of one core for a request after its batch: encoding, HTTP."""
    host_cores: int = 1
    """Cores that work on requests; a request uses one at a time."""
    front_ends: int = 1
    """Processes that share these cores evenly; each request stays with the one that has its connection."""
    source: str = ""

    def batch_s(self, size: int) -> float:
        """Return the seconds that a batch of `size` occupies the device."""
        return self.batch_fixed_s + self.batch_each_s * size

    def slower(self, factor: float) -> ServiceTimes:
        """Return the times of a node that takes `factor` times as long for everything."""
        return replace(
            self,
            batch_fixed_s=factor * self.batch_fixed_s,
            batch_each_s=factor * self.batch_each_s,
            between_batches_s=factor * self.between_batches_s,
            host_before_s=factor * self.host_before_s,
            host_after_s=factor * self.host_after_s,
        )

    @property
    def capacity_per_s(self) -> float:
        """The requests per second that a node can answer, limited by full batches or by its cores."""
        device = self.max_batch / (self.batch_s(self.max_batch) + self.between_batches_s)
        host_s = self.host_before_s + self.host_after_s
        return min(device, self.host_cores / host_s) if host_s else device


def measured_times(name: str) -> ServiceTimes:
    """Read the times of a kind of node.

    Raises:
        KeyError: there is no such kind; the message names all kinds.
    """
    kinds = json.loads(_FILE.read_text("utf-8"))
    if name not in kinds:
        raise KeyError(f"no service times are called {name!r}; there are {', '.join(sorted(kinds))}")
    return ServiceTimes(**kinds[name])


def kinds_of_nodes() -> list[str]:
    """Return the names of all kinds of nodes in the file."""
    return sorted(json.loads(_FILE.read_text("utf-8")))
