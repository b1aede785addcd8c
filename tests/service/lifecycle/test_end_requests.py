"""Requests to end the server: signals in quick succession are one request, SIGHUP is none."""

from __future__ import annotations

import signal

import pytest

from service.lifecycle.end_requests import EndRequests


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


def test_a_front_end_counts_one_request_however_late_its_signal_is_repeated_or_passed_on() -> None:
    front_end = EndRequests(second=signal.SIGUSR2)
    assert front_end.add(signal.SIGTERM, 100.0)
    assert not front_end.add(signal.SIGTERM, 160.0)
    assert front_end.count == 1


@pytest.mark.parametrize("earlier", [[], [signal.SIGTERM], [signal.SIGHUP]])
def test_the_signal_of_its_launcher_is_a_second_request_of_a_front_end(earlier: list[signal.Signals]) -> None:
    front_end = EndRequests(second=signal.SIGUSR2)
    for number in earlier:
        front_end.add(number, 100.0)
    assert front_end.add(signal.SIGUSR2, 100.0)
    assert front_end.count == 2
    assert not front_end.add(signal.SIGTERM, 100.1), "two signals may be handled in another order"


def test_a_front_end_handles_the_signal_of_its_launcher_and_other_servers_leave_it_alone() -> None:
    assert signal.SIGUSR2 in EndRequests(second=signal.SIGUSR2).other_signals
    assert signal.SIGUSR2 not in EndRequests().other_signals
