"""Requests to end the server: signals in quick succession are one request, SIGHUP is none."""

from __future__ import annotations

import signal

from service.lifecycle.end_requests import FRONT_END_APART_S, LAUNCHER_APART_S, EndRequests


def test_signals_that_come_at_once_are_one_request() -> None:
    requests = EndRequests(apart_s=0.5)
    assert requests.add(signal.SIGTERM, 100.0)
    assert not requests.add(signal.SIGTERM, 100.001)
    assert not requests.add(signal.SIGINT, 100.4)
    assert requests.count == 1


def test_a_later_signal_is_a_second_request() -> None:
    requests = EndRequests(apart_s=0.5)
    requests.add(signal.SIGINT, 100.0)
    requests.add(signal.SIGINT, 100.4)
    assert requests.add(signal.SIGINT, 100.6), "the time counts from the request, not from its repetition"
    assert requests.count == 2


def test_a_hangup_is_never_a_request_and_hides_none() -> None:
    requests = EndRequests(apart_s=0.5)
    assert not requests.add(signal.SIGHUP, 100.0)
    assert requests.add(signal.SIGTERM, 100.1)
    assert not requests.add(signal.SIGHUP, 200.0)
    assert requests.count == 1


def test_a_front_end_that_handles_a_signal_late_still_counts_the_second_one_that_the_launcher_passes_on() -> None:
    launcher, front_end = EndRequests(LAUNCHER_APART_S), EndRequests(FRONT_END_APART_S)
    for sent_at, handled_at in ((100.0, 100.4), (101.01, 101.01)):
        assert launcher.add(signal.SIGTERM, sent_at)
        assert front_end.add(signal.SIGTERM, handled_at)


def test_a_repeat_that_the_launcher_passes_on_late_is_no_second_request_of_a_front_end() -> None:
    front_end = EndRequests(FRONT_END_APART_S)
    assert front_end.add(signal.SIGTERM, 100.0)
    assert not front_end.add(signal.SIGTERM, 100.4)
