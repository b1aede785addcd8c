"""The messages from a replica to the proxies."""

from __future__ import annotations

from threading import Barrier

import pytest

pytest.importorskip("ray")  # an optional dependency
from service.ray import replica
from service.ray.replica import report_to_all


def test_registrars_get_reports_at_once_and_an_unreachable_one_does_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica, "_REPORT_TIMEOUT_S", 60.0)  # the threads meet, however late one starts
    together, told = Barrier(2), []

    def report(address: str, timeout_s: float) -> None:
        together.wait(timeout_s)
        told.append(address)

    def away(address: str, timeout_s: float) -> None:
        raise TimeoutError

    report_to_all([report, away, report], "a:1")
    assert told == ["a:1", "a:1"]
