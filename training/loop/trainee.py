"""What the loop asks of a model that is trained; one class a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from torch import Tensor

from export.generators.family import State
from training.config import PhaseConfig
from training.loop.schedule import Place

PhaseT = TypeVar("PhaseT", bound=PhaseConfig)


class Trainee(ABC, Generic[PhaseT]):
    """A generator with everything that trains it, on one device."""

    @abstractmethod
    def begin_phase(self, phase: PhaseT) -> None:
        """Make ready for steps of this phase; called again with it when a run goes on inside."""

    @abstractmethod
    def step(self, number: int, place: Place[PhaseT]) -> dict[str, Tensor]:
        """One update; scalars on the device by their names. `number` counts over all phases."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that a step changes, as tensors and plain containers."""

    @abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""

    @abstractmethod
    def generator_state(self) -> State:
        """The averaged generator in the public key layout, FP32."""

    @abstractmethod
    def sheet(self) -> Tensor:
        """Samples in rows: what goes in, what comes out, the truth. 3×H×W in [0, 1]."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """Figures on the validation pictures; empty where there are none."""
