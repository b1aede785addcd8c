"""Labelled histograms that cache their series, as prometheus_client's look-up takes longer than counting."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Histogram

Labels = tuple[str, ...]


class LabelledHistogram:
    """A histogram with labels.

    Args:
        name: name of the metric.
        text: help text of the metric.
        label_names: names of the labels, in the order of the values that `observe` gets.
        buckets: upper bounds, ascending, without infinity.
        registry: the registry in which it is registered.
    """

    def __init__(
        self, name: str, text: str, label_names: Labels, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._histogram = Histogram(name, text, label_names, buckets=buckets, registry=registry)
        self._series: dict[Labels, Histogram] = {}

    def observe(self, labels: Labels, value: float) -> None:
        """Add a value to the series with these label values. Thread-safe."""
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = self._histogram.labels(*labels)
        series.observe(value)
