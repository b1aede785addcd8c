from __future__ import annotations

import pytest

from benchmarks.scale.service_times import ServiceTimes, kinds_of_nodes, measured_times


def test_the_capacity_is_that_of_full_batches_or_of_busy_cores() -> None:
    assert ServiceTimes(0.1, 0.0, 4).capacity_per_s == pytest.approx(40.0)
    assert ServiceTimes(0.1, 0.0, 4, between_batches_s=0.1).capacity_per_s == pytest.approx(20.0)
    slow_host = ServiceTimes(0.1, 0.0, 4, host_before_s=0.1, host_after_s=0.1, host_cores=2)
    assert slow_host.capacity_per_s == pytest.approx(10.0)
    assert slow_host.slower(2.0).capacity_per_s == pytest.approx(5.0)


@pytest.mark.parametrize(("kind", "per_s"), [("photos-cpu", 82.4), ("pconv-h200", 1879.0)])
def test_a_kind_of_node_has_the_rate_that_was_measured_and_says_where(kind: str, per_s: float) -> None:
    times = measured_times(kind)
    assert times.capacity_per_s == pytest.approx(per_s, rel=0.01)
    assert "docs/" in times.source


def test_an_unknown_kind_is_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(KeyError, match=kinds_of_nodes()[0]):
        measured_times("toaster")
