"""The percentile that all benchmarks use."""

from __future__ import annotations

import math

import pytest

from benchmarks.harness.percentile import percentile


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 51), (0.99, 100), (1.0, 100)])
def test_a_percentile_is_one_of_the_values(share: float, value: int) -> None:
    assert percentile(range(100, 0, -1), share) == value


def test_nothing_has_no_percentile() -> None:
    assert math.isnan(percentile([], 0.5))
