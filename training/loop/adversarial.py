"""The step and the saved state of adversarial trainees: a generator and its average, a discriminator, optimisers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

from torch import Tensor, nn

from export.generators.family import State
from training.config import FitConfig, PhaseConfig
from training.loop.replay import NetUpdate
from training.loop.runtime import Runtime
from training.loop.schedule import StepPosition
from training.loop.trainee import Trainee
from training.loop.updates import OptimiserUpdates, WeightAverage

PhaseT = TypeVar("PhaseT", bound=PhaseConfig)


class AdversarialTrainee(Trainee[PhaseT]):
    """A generator and its discriminator, which may be several nets in one module; subclasses set the attributes."""

    net: nn.Module
    discriminator: nn.Module
    _config: FitConfig
    _runtime: Runtime
    _updates: OptimiserUpdates
    _discriminator_updates: OptimiserUpdates
    _average: WeightAverage
    _update: NetUpdate | None = None

    def begin_phase(self, phase: PhaseT) -> None:
        recorder = self._runtime.recorder(wanted=self._config.cuda_graphs)
        self._update = self._runtime.replay(self.make_update(phase), recorder)

    @abstractmethod
    def make_update(self, phase: PhaseT) -> NetUpdate:
        """Return the update of all nets in a phase, its losses compiled if configured."""

    @abstractmethod
    def batch(self, number: int, position: StepPosition[PhaseT]) -> tuple[Tensor, ...]:
        """Return this process's part of a step's batch, which the update takes."""

    def step(self, number: int, position: StepPosition[PhaseT]) -> dict[str, Tensor]:
        if self._update is None:
            raise RuntimeError("begin_phase comes before step")
        terms = self._update(position.learning_rate, *self.batch(number, position))
        self._average.update()
        return terms

    def state(self) -> dict[str, Any]:
        self._runtime.broadcast_buffers(self.net)
        self._runtime.broadcast_buffers(self.discriminator)
        return {
            "net": self.net.state_dict(),
            "updates": self._updates.state(),
            "average": self._average.state(),
            "discriminator": self.discriminator.state_dict(),
            "discriminator_updates": self._discriminator_updates.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self._updates.load(state["updates"])
        self._average.load(state["average"])
        self.discriminator.load_state_dict(state["discriminator"])
        self._discriminator_updates.load(state["discriminator_updates"])

    def generator_state(self) -> State:
        return dict(self._average.net.state_dict())
