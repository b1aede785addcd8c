"""Rates and quotas, computed from a given time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.auth.limits import DailyCount, TokenBucket


def test_a_burst_passes_and_later_requests_wait_for_the_rate() -> None:
    bucket = TokenBucket(3.0, 0.0)
    assert [bucket.take(2.0, 3, 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take(2.0, 3, 0.0) == 0.5
    assert bucket.take(2.0, 3, 0.25) == 0.25
    assert bucket.take(2.0, 3, 0.5) == 0.0
    assert bucket.take(2.0, 3, 100.0) == 0.0
    assert bucket.tokens == 2.0  # a long pause saves up one burst and no more


@given(st.floats(0.1, 100), st.integers(1, 50), st.lists(st.floats(0, 5), min_size=1, max_size=200))
def test_no_order_of_arrivals_gets_more_than_the_rate_and_one_burst(rate: float, burst: int, gaps: list[float]) -> None:
    bucket, now, passed = TokenBucket(float(burst), 0.0), 0.0, 0
    for gap in gaps:
        now += gap
        passed += bucket.take(rate, burst, now) == 0.0
    assert passed <= burst + now * rate + 1e-6


def test_a_request_after_the_returned_wait_passes() -> None:
    bucket = TokenBucket(0.0, 0.0)
    wait_s = bucket.take(0.3, 1, 0.0)
    assert bucket.take(0.3, 1, wait_s + 1e-9) == 0.0


def test_a_clock_that_goes_back_grants_no_tokens() -> None:
    bucket = TokenBucket(0.0, 10.0)
    assert bucket.take(1.0, 5, 3.0) == 1.0


def test_a_day_ends_at_midnight_utc_wherever_the_client_is() -> None:
    count, zone = DailyCount(), timezone(timedelta(hours=5))
    evening = datetime(2026, 3, 1, 4, 0, tzinfo=zone)  # 23:00 UTC on the last of February
    assert [count.take(2, evening) for _ in range(2)] == [0.0, 0.0]
    assert count.take(2, evening) == pytest.approx(3600)
    assert count.take(2, evening + timedelta(hours=1)) == 0.0
    assert count.count == 1
