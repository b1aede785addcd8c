"""One request to end the server, however many signals carry it."""

from __future__ import annotations

import signal

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
