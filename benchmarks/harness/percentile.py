"""Percentiles of measurements."""

from __future__ import annotations

from collections.abc import Iterable


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least `share` (0 to 1) of all values do not exceed; NaN without values."""
    ascending = sorted(values)
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else float("nan")
