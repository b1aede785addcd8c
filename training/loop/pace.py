"""How far a run is: by its steps, or by a clock over which the phases are stretched."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from training.loop.schedule import Place, place_of, total_steps
from training.run_config import PhaseConfig

PhaseT = TypeVar("PhaseT", bound=PhaseConfig)


class Pace(ABC, Generic[PhaseT]):
    """Where each step of a run stands."""

    def __init__(self, phases: Sequence[PhaseT]) -> None:
        self._phases = phases
        self.total = total_steps(phases)
        """Steps of the whole run; under a clock they are proportions."""

    @abstractmethod
    def place(self, number: int) -> Place[PhaseT] | None:
        """That of the step with this number, which are asked for in their order; None at the end."""

    @property
    @abstractmethod
    def spent_s(self) -> float:
        """Seconds that went by, those before a restart included; 0 where they do not count."""


class CountedPace(Pace[PhaseT]):
    """One step after another until the phases' steps are taken."""

    def place(self, number: int) -> Place[PhaseT] | None:
        return place_of(number, self._phases) if number < self.total else None

    @property
    def spent_s(self) -> float:
        return 0.0


class TimedPace(Pace[PhaseT]):
    """The phases stretched over `seconds`.

    Args:
        phases: their steps are proportions.
        seconds: of the whole run.
        clock: gives seconds; begins to count when the first place is asked for.
        agree: gives all processes the leading one's answer, for which each waits for its device.
        asked_every: steps from one look at the clock to the next; in between a rate hardly moves.
        spent_s: seconds that went by before a restart.
    """

    def __init__(
        self,
        phases: Sequence[PhaseT],
        seconds: float,
        clock: Callable[[], float],
        agree: Callable[[float], float],
        *,
        asked_every: int = 1,
        spent_s: float = 0.0,
    ) -> None:
        super().__init__(phases)
        self._seconds, self._clock, self._agree, self._before = seconds, clock, agree, spent_s
        self._asked_every = asked_every
        self._began: float | None = None
        self._known_s = spent_s
        self._last = -1

    def place(self, number: int) -> Place[PhaseT] | None:
        if self._began is None or number >= self._last + self._asked_every:
            self._began = self._clock() if self._began is None else self._began
            self._last = number
            self._known_s = self._agree(self._before + self._clock() - self._began)
        step = int(self._known_s / self._seconds * self.total)
        return place_of(step, self._phases) if step < self.total else None

    @property
    def spent_s(self) -> float:
        return self._known_s
