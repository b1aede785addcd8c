"""The report of a start: the model being loaded, its number among all, the step, and the elapsed time."""

from __future__ import annotations

import pytest

from engines.load_report import LoadReport
from tests.fakes.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_nothing_is_said_while_nothing_is_loaded(clock):
    report = LoadReport(clock)
    report.step("a step of nothing")
    assert report.describe() == ""


def test_the_model_its_place_the_step_and_the_time_are_said(clock):
    report = LoadReport(clock)
    report.expect(2)
    with report.loading("facades/2"):
        assert report.describe() == "facades/2 (1 of 2), for 0 s"
    with report.loading("photos/5"):
        report.step("building its plan with TensorRT 11.4.0, 40 %")
        clock.now += 34
        assert report.describe() == "photos/5 (2 of 2), building its plan with TensorRT 11.4.0, 40 %, for 34 s"
    assert report.describe() == ""


def test_an_older_version_is_no_further_model(clock):
    report = LoadReport(clock)
    report.expect(1)
    with pytest.raises(OSError, match="torn"), report.loading("photos/5"):
        raise OSError("torn")
    with report.loading("photos/4"):
        assert report.describe() == "photos/4 (1 of 1), for 0 s"


def test_a_model_that_came_later_has_no_place(clock):
    report = LoadReport(clock)
    with report.loading("photos/6"):
        assert report.describe() == "photos/6, for 0 s"


def test_the_log_is_told_from_time_to_time(clock):
    lines: list[str] = []
    report = LoadReport(clock, lines.append, log_every_s=5)
    with report.loading("photos/5"):
        for percent in range(12):
            report.step(f"{percent} %")
            clock.now += 1
    assert lines == ["photos/5, 5 %, for 5 s", "photos/5, 10 %, for 10 s"]
