"""State that all adversarial trainees save: a generator and its average, a discriminator, the optimisers of both."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn

from export.generators.family import State
from training.config import PhaseConfig
from training.loop.runtime import Runtime
from training.loop.trainee import Trainee
from training.loop.updates import OptimiserUpdates, WeightAverage

PhaseT = TypeVar("PhaseT", bound=PhaseConfig)


class AdversarialTrainee(Trainee[PhaseT]):
    """A generator and its discriminator, which may be several nets in one module; its maker sets the attributes."""

    net: nn.Module
    discriminator: nn.Module
    _runtime: Runtime
    _updates: OptimiserUpdates
    _discriminator_updates: OptimiserUpdates
    _average: WeightAverage

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
