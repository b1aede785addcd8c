"""Engines are timed side by side; only a clear winner overrides the fixed order, and one that fails is left out."""

from __future__ import annotations

import pytest

from engines.errors import EngineFailed, EngineUnavailable
from engines.fake import FakeEngine
from engines.race.timing import Racer
from tests.fakes.captured_logs import capture_logs


@pytest.mark.parametrize(
    ("second_ms", "order"),
    [
        pytest.param((9.0,), ("second", "first"), id="clearly faster"),
        pytest.param((9.6,), ("first", "second"), id="by less than the margin"),
        pytest.param((10.0,), ("first", "second"), id="the same"),
        pytest.param((30.0,), ("first", "second"), id="slower"),
        pytest.param((5.0, 15.0), ("second", "first"), id="twice as fast alone, half as slow again in batches"),
        pytest.param((5.0, 25.0), ("first", "second"), id="twice as fast alone, 2.5 times as slow in batches"),
    ],
)
def test_an_engine_is_preferred_if_it_is_faster_by_the_margin_over_all_shapes(track, second_ms, order):
    result = track.run(track.racer("first", 10.0), track.racer("second", *second_ms))
    assert result.order == order
    assert f"first 10, second {second_ms[0]:g} ms at 1 × 16×16" in result.why
    assert track.open_engines == 0


def test_three_engines_are_ordered_by_speed(track):
    result = track.run(track.racer("a", 10.0), track.racer("b", 8.0), track.racer("c", 6.0))
    assert result.order == ("c", "b", "a")
    assert result.why.startswith("race: c is faster (a 10, b 8, c 6 ms at 1 × 16×16; ")


def test_a_slow_first_batch_which_compiles_does_not_count(track):
    compiling = track.racer("first", 8.0)

    def slow_start() -> FakeEngine:
        track.clock.now += 100
        return compiling.open()

    assert track.run(Racer("first", slow_start), track.racer("second", 10.0)).order == ("first", "second")


def test_the_time_is_bounded_and_each_shape_gets_a_share(track):
    began = track.clock.now
    track.run(track.racer("first", 10.0), track.racer("second", 10.0), seconds=2.0)
    assert 1.5 < track.clock.now - began < 3.0


def test_a_shape_for_which_no_time_is_left_is_not_raced(track):
    result = track.run(track.racer("first", 900.0), track.racer("second", 500.0), seconds=1.0)
    assert result.order == ("second", "first")
    assert "8 × 16×16" not in result.why
    assert track.batches == 2 * (2 + 3)


def test_an_engine_that_cannot_be_opened_or_fails_on_the_way_is_left_out(track):
    missing = track.racer("missing", 1.0, error=EngineUnavailable("not installed"), from_batch=0)
    failing = track.racer("failing", 1.0, error=EngineFailed("a bad kernel"), from_batch=4)
    with capture_logs() as logs:
        result = track.run(missing, failing, track.racer("a", 10.0), track.racer("b", 5.0))
    assert result.order == ("b", "a")
    assert [(line["event"], line["engine"], line["reason"]) for line in logs] == [
        ("not in the race", "missing", "not installed"),
        ("out of the race", "failing", "a bad kernel"),
    ]
    assert track.open_engines == 0


@pytest.mark.parametrize("from_batch", [0, 1, 4])
def test_an_unexpected_error_of_one_engine_leaves_the_race_to_the_others(track, from_batch):
    broken = track.racer("broken", 1.0, error=ValueError("a bad file"), from_batch=from_batch)
    raced = track.race(broken, track.racer("a", 10.0), track.racer("b", 5.0))
    assert raced.result.order == ("b", "a")
    assert raced.left_out == {"broken": "ValueError: a bad file"}
    assert track.open_engines == 0


def test_one_engine_that_is_left_has_won_and_stays_open(track):
    failing = track.racer("failing", 1.0, error=EngineFailed("a bad kernel"))
    raced = track.race(failing, track.racer("a", 10.0))
    assert (raced.result.order, raced.result.why) == (("a",), "race: only a runs here")
    assert track.open_engines == 1
    raced.engine.close()
    assert track.open_engines == 0


def test_without_any_engine_there_is_no_result(track):
    assert track.race(track.racer("gone", 1.0, error=EngineUnavailable("x"), from_batch=0)) is None
