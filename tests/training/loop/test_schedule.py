"""Phases, learning rates and numbers of samples."""

from __future__ import annotations

import pytest

from training.config import PhaseConfig
from training.loop.schedule import position_of_step, total_steps

PHASES = [
    PhaseConfig(steps=100, batch=4, learning_rate=1.0, final_learning_rate=0.2, warm_up=10, hold=0.3),
    PhaseConfig(steps=50, batch=8, learning_rate=0.5),
]


def rate(step: int) -> float:
    return position_of_step(step, PHASES).learning_rate


def test_steps_run_through_the_phases_in_order() -> None:
    assert total_steps(PHASES) == 150
    assert [(position_of_step(n, PHASES).index, position_of_step(n, PHASES).step) for n in (0, 99, 100, 149)] == [
        (0, 0),
        (0, 99),
        (1, 0),
        (1, 49),
    ]
    with pytest.raises(IndexError):
        position_of_step(150, PHASES)


def test_samples_are_counted_over_phases_of_different_batches() -> None:
    assert [position_of_step(n, PHASES).samples_before for n in (0, 1, 100, 101)] == [0, 4, 400, 408]


def test_the_rate_rises_holds_and_falls_along_a_cosine() -> None:
    assert rate(0) == pytest.approx(0.1)
    assert rate(9) == rate(29) == 1.0
    assert rate(65) == pytest.approx(0.6, abs=0.02)
    assert rate(99) == pytest.approx(0.2, abs=0.01)


def test_a_phase_without_more_ado_falls_to_zero() -> None:
    assert rate(100) == 0.5
    assert 0 < rate(149) < 0.001
