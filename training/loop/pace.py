"""The progress of a run: by the steps of its phases, or by a clock, with phases stretched over a given time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from training.loop.schedule import StepPosition, position_of_step, total_steps
from training.run_config import PhaseConfig

PhaseT = TypeVar("PhaseT", bound=PhaseConfig)


class Pace(ABC, Generic[PhaseT]):
    """Maps the steps of a run to positions in its phases."""

    def __init__(self, phases: Sequence[PhaseT]) -> None:
        self._phases = phases
        self.total = total_steps(phases)
        """Number of steps of the whole run; for a timed run they are proportions."""

    @abstractmethod
    def position(self, number: int) -> StepPosition[PhaseT] | None:
        """Return the position of a step, None after the end of the run; called with ascending numbers."""

    @property
    @abstractmethod
    def spent_s(self) -> float:
        """Elapsed seconds, including those before a restart; 0 for a run that counts steps."""


class CountedPace(Pace[PhaseT]):
    """Pace of a run that ends after its phases' steps."""

    def position(self, number: int) -> StepPosition[PhaseT] | None:
        return position_of_step(number, self._phases) if number < self.total else None

    @property
    def spent_s(self) -> float:
        return 0.0


class TimedPace(Pace[PhaseT]):
    """Pace of a run with its phases stretched over `seconds`.

    Args:
        phases: the phases of the run; their steps are proportions.
        seconds: the duration of the whole run.
        clock: returns seconds; the run starts with the first call of `position`.
        agree: broadcasts the first process's value to all processes, which synchronises their devices.
        steps_per_reading: number of steps between readings of the clock; the learning rate hardly changes in between.
        spent_s: elapsed seconds before a restart.
    """

    def __init__(
        self,
        phases: Sequence[PhaseT],
        seconds: float,
        clock: Callable[[], float],
        agree: Callable[[float], float],
        *,
        steps_per_reading: int = 1,
        spent_s: float = 0.0,
    ) -> None:
        super().__init__(phases)
        self._seconds, self._clock, self._agree, self._before = seconds, clock, agree, spent_s
        self._steps_per_reading = steps_per_reading
        self._began: float | None = None
        self._known_s = spent_s
        self._last = -1

    def position(self, number: int) -> StepPosition[PhaseT] | None:
        if self._began is None or number >= self._last + self._steps_per_reading:
            self._began = self._clock() if self._began is None else self._began
            self._last = number
            self._known_s = self._agree(self._before + self._clock() - self._began)
        step = int(self._known_s / self._seconds * self.total)
        return position_of_step(step, self._phases) if step < self.total else None

    @property
    def spent_s(self) -> float:
        return self._known_s
