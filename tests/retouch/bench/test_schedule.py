from __future__ import annotations

import random
import statistics
from itertools import pairwise

import pytest

from retouch.bench.schedule import poisson_due_times


def test_the_same_seed_gives_the_same_times() -> None:
    first = poisson_due_times(50, 10, random.Random(1))
    assert first == poisson_due_times(50, 10, random.Random(1))
    assert first != poisson_due_times(50, 10, random.Random(2))


def test_times_ascend_within_the_duration() -> None:
    due_times = poisson_due_times(100, 5, random.Random(0))
    assert due_times == sorted(due_times)
    assert due_times[0] >= 0
    assert due_times[-1] < 5


@pytest.mark.parametrize("rate_per_s", [5.0, 200.0])
def test_arrivals_are_a_poisson_process(rate_per_s: float) -> None:
    duration_s = 20_000 / rate_per_s
    due_times = poisson_due_times(rate_per_s, duration_s, random.Random(3))
    gaps = [later - earlier for earlier, later in pairwise(due_times)]
    assert len(due_times) == pytest.approx(20_000, rel=0.03)
    assert statistics.mean(gaps) == pytest.approx(1 / rate_per_s, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(1 / rate_per_s, rel=0.03), "as spread as they are long"
    per_second = [0] * 100
    for due_s in due_times:
        per_second[int(due_s / duration_s * 100)] += 1
    assert statistics.variance(per_second) == pytest.approx(statistics.mean(per_second), rel=0.4)


def test_a_low_rate_may_have_no_request_at_all() -> None:
    assert poisson_due_times(1e-6, 1, random.Random(0)) == []
