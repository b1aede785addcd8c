"""The interface of a model in training; one class for each kind of model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from torch import Tensor

from export.generators.family import State
from training.config import PhaseConfig
from training.loop.schedule import StepPosition

PhaseT = TypeVar("PhaseT", bound=PhaseConfig)


class Trainee(ABC, Generic[PhaseT]):
    """A generator with its data, losses and optimisers, on one device."""

    @abstractmethod
    def begin_phase(self, phase: PhaseT) -> None:
        """Prepare for the steps of a phase; called again when a run continues inside it."""

    @abstractmethod
    def step(self, number: int, position: StepPosition[PhaseT]) -> dict[str, Tensor]:
        """Run one update; returns scalars on the device by name. `number` counts over all phases."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return everything that a step changes, as tensors and plain containers."""

    @abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""

    @abstractmethod
    def generator_state(self) -> State:
        """Return the averaged generator in the public key layout, FP32."""

    @abstractmethod
    def sheet(self) -> Tensor:
        """Return samples in rows: input, output, truth. 3×H×W in [0, 1]."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """Return figures on the validation pictures; empty if there are none."""

    def validate_start(self) -> dict[str, float]:
        """Return the figures of `validate` for the net that the run starts from; called before the first step."""
        return self.validate()

    def reason_to_stop(self, done: int) -> str | None:  # noqa: ARG002 (a trainee may need it)
        """Return why the run should end after `done` steps; None if it should go on."""
        return None
