"""The progress of a run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from training.loop.pace import CountedPace, TimedPace
from training.run_config import PhaseConfig

PHASES = [PhaseConfig(steps=30, batch=2, learning_rate=1.0), PhaseConfig(steps=10, batch=2, learning_rate=0.5)]


def alone(value: float) -> float:
    return value


def clock(times: Iterator[float]) -> TimedPace[PhaseConfig]:
    return TimedPace(PHASES, 100.0, times.__next__, alone)


def test_counted_steps_end_with_the_last_phase() -> None:
    positions = [CountedPace(PHASES).position(number) for number in (0, 29, 30, 39, 40)]
    assert [position and (position.index, position.step) for position in positions] == [
        (0, 0),
        (0, 29),
        (1, 0),
        (1, 9),
        None,
    ]


def test_phases_are_stretched_over_the_clock() -> None:
    pace = clock(iter([5.0, 5.0, 54.9, 80.1, 104.9, 105.0]))
    positions = [pace.position(number) for number in range(5)]
    assert [position and (position.index, position.step) for position in positions] == [
        (0, 0),
        (0, 19),
        (1, 0),
        (1, 9),
        None,
    ]
    assert pace.spent_s == 100


def test_time_before_a_restart_counts() -> None:
    position = TimedPace(PHASES, 100.0, iter([7.0, 7.0]).__next__, alone, spent_s=90).position(1234)
    assert position is not None
    assert (position.index, position.step) == (1, 6)


def test_all_processes_are_at_the_position_of_the_leader_and_ask_now_and_then() -> None:
    asked = []

    def agree(value: float) -> float:
        asked.append(value)
        return 50.0

    pace = TimedPace(PHASES, 100.0, count().__next__, agree, steps_per_reading=20)
    positions = [pace.position(number) for number in range(41)]
    assert {position and position.step for position in positions} == {20}
    assert len(asked) == 3
