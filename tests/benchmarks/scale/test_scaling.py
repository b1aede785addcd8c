from __future__ import annotations

from benchmarks.scale.scaling import Autoscaler, Scaling


def test_nodes_follow_the_requests_in_flight_within_the_limits() -> None:
    scaler = Autoscaler(Scaling(2, 10, 8.0, hold_s=0.0))
    assert [scaler.nodes(now, in_flight) for now, in_flight in enumerate((0, 17, 40, 500))] == [2, 3, 5, 10]


def test_nodes_are_given_back_only_after_the_hold() -> None:
    scaler = Autoscaler(Scaling(1, 10, 8.0, hold_s=300.0))
    assert scaler.nodes(0.0, 80) == 10
    assert scaler.nodes(299.0, 8) == 10
    assert scaler.nodes(301.0, 8) == 1
