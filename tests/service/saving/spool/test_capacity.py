from __future__ import annotations

import pytest

from service.core.errors import Overloaded
from service.saving.spool.capacity import MAX_RETRY_S, UNKNOWN_DRAIN_RETRY_S, Backoff, SpoolCapacity, SpoolLimits


def fill(spool: SpoolCapacity, *sizes: int) -> None:
    for size in sizes:
        spool.reserve(size, now=0.0)
        spool.fill(size, size)


def test_promises_count_like_results_until_they_are_taken_back() -> None:
    spool = SpoolCapacity(SpoolLimits(max_items=2, max_bytes=100))
    spool.reserve(10, now=0.0)
    fill(spool, 20)
    with pytest.raises(Overloaded) as refused:
        spool.reserve(1, now=0.0)
    assert refused.value.code == "spool_full"
    assert (spool.items, spool.bytes) == (2, 30)

    spool.release(10)
    spool.reserve(1, now=0.0)
    assert (spool.items, spool.bytes) == (2, 21)


def test_bytes_are_limited_as_well_as_items() -> None:
    spool = SpoolCapacity(SpoolLimits(max_items=10, max_bytes=100))
    fill(spool, 60)
    spool.reserve(40, now=0.0)
    with pytest.raises(Overloaded, match="full"):
        spool.reserve(1, now=0.0)


def test_a_result_larger_than_the_spool_gets_in_when_it_is_empty() -> None:
    spool = SpoolCapacity(SpoolLimits(max_items=10, max_bytes=100))
    fill(spool, 5000)
    with pytest.raises(Overloaded):
        spool.reserve(1, now=0.0)
    spool.drain(5000, now=1.0)
    spool.reserve(1, now=1.0)


def test_a_result_larger_than_its_estimate_is_accepted_and_counted_as_it_is() -> None:
    spool = SpoolCapacity(SpoolLimits(max_items=10, max_bytes=100))
    spool.reserve(10, now=0.0)
    spool.fill(10, 120)
    assert (spool.reserved_bytes, spool.waiting_bytes) == (0, 120)


@pytest.mark.parametrize(
    ("drained", "now", "expected_s"),
    [
        pytest.param([], 0.0, UNKNOWN_DRAIN_RETRY_S, id="nothing was saved yet"),
        pytest.param([0.0], 100.0, UNKNOWN_DRAIN_RETRY_S, id="nothing was saved lately"),
        pytest.param([0.0, 1.0, 2.0, 3.0], 4.0, 1.0, id="one a second: one more second"),
        pytest.param([0.0, 0.1, 0.2, 0.3], 0.4, 0.1, id="ten a second: a tenth"),
        pytest.param([0.0], 20.0, 20.0, id="one in twenty seconds: twenty more"),
    ],
)
def test_a_full_spool_asks_for_the_time_that_the_disk_needs(
    drained: list[float], now: float, expected_s: float
) -> None:
    spool = SpoolCapacity(SpoolLimits(max_items=4, max_bytes=10**9))
    for at in drained:
        fill(spool, 100)
        spool.drain(100, 1000.0 + at)
    fill(spool, 100, 100, 100, 100)
    with pytest.raises(Overloaded) as refused:
        spool.reserve(100, 1000.0 + now)
    assert refused.value.retry_after_s == pytest.approx(expected_s)


def test_a_spool_full_of_bytes_asks_for_the_time_those_bytes_need() -> None:
    spool = SpoolCapacity(SpoolLimits(max_items=100, max_bytes=1000))
    fill(spool, 100)
    spool.drain(100, 0.0)
    fill(spool, 900)
    with pytest.raises(Overloaded) as refused:
        spool.reserve(400, now=2.0)  # 300 bytes too many, at 50 bytes a second
    assert refused.value.retry_after_s == pytest.approx(6.0)


def test_retry_after_is_at_most_a_minute() -> None:
    spool = SpoolCapacity(SpoolLimits(max_items=100, max_bytes=1000))
    fill(spool, 1)
    spool.drain(1, 0.0)
    fill(spool, 1000)
    with pytest.raises(Overloaded) as refused:
        spool.reserve(1000, now=10.0)
    assert refused.value.retry_after_s == MAX_RETRY_S


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(first_s=0.1, longest_s=1.0)
    assert [backoff.pause_s(n) for n in (1, 2, 3, 4, 5, 10_000)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_free_items_are_those_that_still_fit_by_number_and_by_the_size_of_those_that_wait() -> None:
    spool = SpoolCapacity(SpoolLimits(max_items=10, max_bytes=1000))
    assert spool.free_items == 10
    fill(spool, 1)
    assert spool.free_items == 9
    spool.drain(1, now=0.0)
    fill(spool, 100, 300)
    spool.reserve(100, now=0.0)
    assert spool.free_items == 2, "500 bytes, for results of 200 as those that wait"
    spool.fill(100, 700)
    assert spool.free_items == 0
