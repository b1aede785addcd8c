"""The phase and learning rate of each step of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from training.run_config import PhaseConfig

PhaseT = TypeVar("PhaseT", bound=PhaseConfig)


@dataclass(frozen=True)
class StepPosition(Generic[PhaseT]):
    """The position of a step: its phase, its number within the phase, and the samples before it."""

    index: int
    phase: PhaseT
    step: int
    samples_before: int

    @property
    def learning_rate(self) -> float:
        """The learning rate: linear warm-up from zero, constant while held, then a cosine to the final rate."""
        phase = self.phase
        if self.step < phase.warm_up:
            return phase.learning_rate * (self.step + 1) / phase.warm_up
        start = max(phase.warm_up, int(phase.hold * phase.steps))
        if self.step < start:
            return phase.learning_rate
        done = (self.step - start) / max(1, phase.steps - start)
        span = phase.learning_rate - phase.final_learning_rate
        return phase.final_learning_rate + span * 0.5 * (1 + math.cos(math.pi * done))


def total_steps(phases: Sequence[PhaseConfig]) -> int:
    """Return the number of steps of the whole run."""
    return sum(phase.steps for phase in phases)


def position_of_step(step: int, phases: Sequence[PhaseT]) -> StepPosition[PhaseT]:
    """Return the position of step 0 … total - 1."""
    samples = 0
    for index, phase in enumerate(phases):
        if step < phase.steps:
            return StepPosition(index, phase, step, samples + step * phase.batch)
        step -= phase.steps
        samples += phase.steps * phase.batch
    raise IndexError(f"step {step} past the end")
