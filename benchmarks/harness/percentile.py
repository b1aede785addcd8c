"""Percentiles of measurements."""

from __future__ import annotations

from collections.abc import Iterable


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest of the values that `share` (0 to 1) of all do not exceed; NaN if there are none."""
    ascending = sorted(values)
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else float("nan")
