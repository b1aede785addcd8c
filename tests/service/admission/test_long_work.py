"""Long work: its end is predicted from the work ahead of it and learned costs; it is refused if it would be late."""

from __future__ import annotations

import pytest

from service.admission.long_work import LongWork
from service.core.call import Call
from service.core.errors import DeadlineExceeded, Overloaded
from tests.fakes.clock import Clock

NOW = 1000.0


def call(allowed_s: float, *, own: bool = False) -> Call:
    return Call("id", NOW, NOW + allowed_s, deadline_from_client=own)


def learned(threads: int = 1) -> LongWork:
    """Return LongWork that has learned a cost of one second a unit."""
    work = LongWork(threads, Clock(NOW))
    work.learn(10, 10.0)
    return work


def test_nothing_is_predicted_before_the_first_measurement() -> None:
    work = LongWork(2, Clock(NOW))
    with work.count(call(1), 10**9):
        assert work.predicted_s(10**9) == 0


def test_pending_work_is_shared_by_the_threads_and_a_piece_runs_on_one() -> None:
    work = learned(threads=2)
    assert (work.predicted_s(3), work.predicted_s(3, pieces=4)) == (3, 6)
    with work.count(call(100), 4, pieces=2):
        assert work.predicted_s(3) == 4 + 3
    assert work.predicted_s(3) == 3


def test_the_latest_measurements_count_most() -> None:
    work = learned()
    for _ in range(50):
        work.learn(1, 5.0)
    assert 4.5 < work.predicted_s(1) < 5


def test_work_that_would_be_late_is_refused_with_a_retry_after() -> None:
    work = learned()
    with work.count(call(100), 20):
        with pytest.raises(Overloaded, match="25") as refused, work.count(call(8), 5):
            pass
        assert refused.value.retry_after_s == 25 - 8
        with pytest.raises(DeadlineExceeded, match="allow more"), work.count(call(8, own=True), 5):
            pass
        with work.count(call(26), 5):
            assert work.pending == 25
        assert work.pending == 20


def test_work_that_is_alone_is_begun_whatever_the_prediction() -> None:
    work = learned()
    with work.count(call(1), 50):
        assert work.pending == 50
