"""Histograms with cheap observations: values are appended to a list, and counted when the metrics are read.

For each observation, prometheus_client looks up the series, searches the buckets linearly and takes two locks, which
would be part of every request's time.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Protocol

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import INF, floatToGoString

Labels = tuple[str, ...]
_MAX_PENDING = 2048
"""Limit of uncounted observations if nobody reads the metrics; counting that many takes half a millisecond."""


class FastHistogram(Protocol):
    """A histogram with labels."""

    def observe(self, labels: Labels, value: float) -> None:
        """Add a value; from any thread."""


class LocalHistogram(Collector):
    """A histogram of one process, in its memory.

    Args:
        name: name of the series.
        text: its help text.
        label_names: names of the labels, in the order of their values.
        buckets: upper bounds, ascending, without infinity.
        registry: the registry that it is collected from.
    """

    def __init__(
        self, name: str, text: str, label_names: Labels, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._about = name, text, label_names
        self._bounds = [float(bound) for bound in buckets]
        self._le_labels = [floatToGoString(bound) for bound in (*self._bounds, INF)]  # type: ignore[no-untyped-call]
        self._pending: deque[tuple[Labels, float]] = deque()
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        self._lock = threading.Lock()
        registry.register(self)

    def observe(self, labels: Labels, value: float) -> None:
        """Add a value; from any thread."""
        self._pending.append((labels, value))
        if len(self._pending) >= _MAX_PENDING:
            self._count()

    def describe(self) -> Iterable[HistogramMetricFamily]:
        """The metric's name, without values."""
        name, text, label_names = self._about
        return [HistogramMetricFamily(name, text, labels=label_names)]

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """The counts of all observations so far."""
        self._count()
        (family,) = self.describe()
        with self._lock:
            for labels, counts in self._counts.items():
                family.add_metric(
                    labels, list(zip(self._le_labels, accumulate(counts), strict=True)), self._sums[labels]
                )
        return [family]

    def _count(self) -> None:
        with self._lock:
            for _ in range(len(self._pending)):
                labels, value = self._pending.popleft()
                counts = self._counts.get(labels)
                if counts is None:
                    counts = self._counts[labels] = [0] * len(self._le_labels)
                    self._sums[labels] = 0.0
                counts[bisect_left(self._bounds, value)] += 1
                self._sums[labels] += value


class SharedHistogram:
    """A histogram in files that all processes of a server share; counted at once, so that it survives a crash.

    Takes the arguments of `LocalHistogram`.
    """

    def __init__(
        self, name: str, text: str, label_names: Labels, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._histogram = Histogram(name, text, label_names, buckets=buckets, registry=registry)
        self._children: dict[Labels, Histogram] = {}

    def observe(self, labels: Labels, value: float) -> None:
        """Add a value; from any thread."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._histogram.labels(*labels)
        child.observe(value)
