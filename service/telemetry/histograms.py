"""Histograms with labels whose series are looked up once: prometheus_client's own lookup takes longer than counting."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Histogram

Labels = tuple[str, ...]


class LabelledHistogram:
    """A histogram with labels; if processes share their series, in files that outlive a process.

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
        self._histogram = Histogram(name, text, label_names, buckets=buckets, registry=registry)
        self._series: dict[Labels, Histogram] = {}

    def observe(self, labels: Labels, value: float) -> None:
        """Add a value; from any thread."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = self._histogram.labels(*labels)
        series.observe(value)
