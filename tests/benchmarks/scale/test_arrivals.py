from __future__ import annotations

import random
from collections import Counter

import pytest

from benchmarks.scale.arrivals import FLOODER, Traffic


def test_the_rate_follows_the_wave_and_the_burst() -> None:
    traffic = Traffic(100.0, 100.0, wave=0.5, day_s=100.0, bursts=[(70.0, 80.0, 3.0)])
    times = [arrival.at_s for arrival in traffic.arrivals(random.Random(1))]
    assert times == sorted(times)
    for begin_s, end_s in ((0, 10), (20, 30), (45, 55), (70, 80)):
        expected = sum(traffic.rate_per_s(begin_s + step / 10) for step in range(10 * (end_s - begin_s))) / 10
        found = sum(begin_s <= at_s < end_s for at_s in times)
        assert found == pytest.approx(expected, rel=0.12)
    assert traffic.rate_per_s(0.0) == pytest.approx(50.0)
    assert traffic.rate_per_s(50.0) == pytest.approx(150.0)


def test_the_flood_comes_from_one_client_in_its_time_only_and_leaves_the_others_as_they_were() -> None:
    calm = list(Traffic(50.0, 60.0).arrivals(random.Random(1)))
    both = list(Traffic(50.0, 60.0, flood=(20.0, 30.0, 200.0)).arrivals(random.Random(1)))
    flood = [arrival for arrival in both if arrival.client == FLOODER]
    assert len(flood) == pytest.approx(2000, rel=0.1)
    assert all(20.0 <= arrival.at_s < 30.0 for arrival in flood)
    assert len(both) - len(flood) == pytest.approx(len(calm), rel=0.1)
    assert [arrival.at_s for arrival in both] == sorted(arrival.at_s for arrival in both)


def test_popular_models_are_asked_for_more_often() -> None:
    counts = Counter(arrival.model for arrival in Traffic(100.0, 100.0, models=4).arrivals(random.Random(1)))
    assert [model for model, _ in counts.most_common()] == [0, 1, 2, 3]
    assert counts[0] / counts[3] == pytest.approx(4.0, rel=0.15)
