"""The cost of a request, learned from the requests that were served."""

from __future__ import annotations

import pytest

from service.admission.service_rate import ServiceRate


def test_nothing_is_known_before_the_first_request() -> None:
    assert ServiceRate(8).request_s(0.0) == 0.0


def test_the_time_per_sample_is_that_of_a_full_batch() -> None:
    service_rate = ServiceRate(8)
    service_rate.add_measurement([(1, 0.008)], 0.01)
    assert service_rate.request_s(0.0) == pytest.approx(0.008)
    assert service_rate.unloaded_s == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("fixed_s", "each_s", "expected_s"),
    [
        pytest.param(0.008, 0.0, 0.001, id="a batch costs the same whatever its size"),
        pytest.param(0.0, 0.05, 0.05, id="a batch costs as much as its samples"),
        pytest.param(0.008, 0.001, 0.002, id="both"),
    ],
)
def test_the_time_of_a_full_batch_is_extrapolated_from_small_ones(
    fixed_s: float, each_s: float, expected_s: float
) -> None:
    service_rate = ServiceRate(8)
    for size in (1, 2, 3, 1, 4, 2, 3):
        service_rate.add_measurement([(size, fixed_s + each_s * size)], 0.01)
    assert service_rate.request_s(0.0) == pytest.approx(expected_s)


def test_a_request_of_several_samples_costs_them_all() -> None:
    service_rate = ServiceRate(8)
    for _ in range(100):
        service_rate.add_measurement([(8, 0.008)] * 4, 0.01)
    assert service_rate.request_s(0.0) == pytest.approx(0.004)


def serve(service_rate: ServiceRate, every_s: float, inside: int, begin: float = 1.0, count: int = 1000) -> float:
    """Count replies at intervals of `every_s` seconds; returns the time after the last."""
    now = begin
    for _ in range(count):
        service_rate.count_reply(inside, now)
        now += every_s
    return now


def test_the_service_rate_includes_http_and_codecs_while_requests_queue() -> None:
    service_rate = ServiceRate(8)
    service_rate.add_measurement([(8, 0.008)], 0.01)
    now = serve(service_rate, 0.002, inside=50)
    assert service_rate.request_s(now) == pytest.approx(0.002)
    assert service_rate.request_s(now + 60) == pytest.approx(0.001), "an old rate says nothing any more"


def test_replies_of_an_idle_service_do_not_count() -> None:
    service_rate = ServiceRate(8)
    service_rate.add_measurement([(8, 0.008)], 0.01)
    now = serve(service_rate, 0.5, inside=1, count=20)
    assert service_rate.request_s(now) == pytest.approx(0.001)


def test_the_time_between_bursts_of_requests_is_no_time_of_service() -> None:
    service_rate = ServiceRate(8)
    now = serve(service_rate, 0.002, inside=50)
    service_rate.count_reply(0, now)
    now = serve(service_rate, 0.002, inside=50, begin=now + 100, count=200)
    assert service_rate.request_s(now) == pytest.approx(0.002)


def test_a_slow_moment_changes_the_measured_rate_by_less_than_a_third() -> None:
    service_rate = ServiceRate(8)
    now = serve(service_rate, 1 / 64, inside=50, begin=101.0, count=17)
    assert service_rate.request_s(now) == 1 / 64
    now = serve(service_rate, 1 / 16, inside=50, begin=101.25 + 1 / 16, count=8)
    assert service_rate.request_s(now) == pytest.approx(0.7 / 64 + 0.3 / 16)


def test_a_slow_request_changes_the_time_without_queues_by_a_twentieth() -> None:
    service_rate = ServiceRate(8)
    service_rate.add_measurement([(1, 0.1)], 0.5)
    service_rate.add_measurement([(1, 0.1)], 1.5)
    assert service_rate.unloaded_s == pytest.approx(0.55)


def test_the_measured_rate_follows_a_service_that_slows_down() -> None:
    service_rate = ServiceRate(8)
    now = serve(service_rate, 0.002, inside=50)
    now = serve(service_rate, 0.01, inside=50, begin=now)
    assert service_rate.request_s(now) == pytest.approx(0.01, rel=0.05)


def test_a_large_picture_does_not_change_the_prediction_for_others() -> None:
    service_rate = ServiceRate(8)
    service_rate.add_measurement([(1, 0.1)], 0.5)
    service_rate.add_measurement([(1, 0.1)], None)
    assert service_rate.unloaded_s == 0.5
