"""The drain: one deadline for the whole shutdown."""

from __future__ import annotations

from service.lifecycle.drain import MIN_FLUSH_S, Drain
from tests.fakes.clock import Clock


def test_time_used_by_requests_is_not_left_for_the_disk() -> None:
    clock = Clock()
    drain = Drain(60.0, clock)
    assert (drain.waited_s, drain.flush_s) == (0.0, 60.0)
    drain.begin()
    clock.now += 20
    drain.begin()
    assert (drain.waited_s, drain.flush_s) == (20.0, 40.0)
    clock.now += 50
    assert drain.flush_s == MIN_FLUSH_S


def test_a_drain_is_clean_if_all_requests_were_answered_and_all_results_saved() -> None:
    assert Drain(1.0, Clock()).clean
    assert not Drain(1.0, Clock(), cut=1).clean
    assert not Drain(1.0, Clock(), unsaved=1).clean
