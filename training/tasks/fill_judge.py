"""A judge of FillNet's fills: a discriminator with its optimiser, its R1 and what it is right about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from export.generators.family import State
from training.fill_config import DiscriminatorConfig, FillConfig
from training.loop.runtime import Runtime
from training.loop.updates import OptimiserUpdates, UpdateSettings
from training.losses.multi_scale_discriminator import (
    Ratings,
    discriminator_loss,
    generator_loss,
    gradient_penalty,
    told_apart,
)
from training.losses.picture_views import roll_picture
from training.weights.initial import load_initial

_LONGEST = 50.0
"""Clipping norm of its gradients, which only spikes exceed."""
_PENALISED = 4
"""R1 is computed on one of this many pictures."""


class JudgedBatch(NamedTuple):
    """Photographs with their holes, and the same filled."""

    filled: Tensor
    image: Tensor
    hole: Tensor


def in_fp32(state: State) -> State:
    """Return the tensors in FP32, as a judge.pth in FP16 is trained on."""
    return {key: tensor.float() for key, tensor in state.items()}


class FillJudge:
    """A discriminator on a device; pictures reach it rolled, so that it shares no grid with the net."""

    def __init__(self, net: nn.Module, knobs: DiscriminatorConfig, config: FillConfig, runtime: Runtime) -> None:
        if knobs.initial is not None:
            load_initial(net, knobs.initial, in_fp32)
        runtime.move_to_device(net)
        self.net, self._knobs, self._runtime = net, knobs, runtime
        self._updates = OptimiserUpdates(net, config, runtime, UpdateSettings(knobs.betas, _LONGEST))
        self._rate: Callable[[Tensor], Any] = net

    def compile(self, *, wanted: bool) -> None:
        """Rate pictures with compiled code from now on, or with the net itself."""
        self._rate = torch.compile(self.net, dynamic=False) if wanted else self.net

    def freeze(self) -> None:
        """Take no gradients of its weights until it learns again."""
        self.net.requires_grad_(requires_grad=False)

    def rate(self, picture: Tensor, hole: Tensor, shift: Sequence[int]) -> Ratings:
        """Rate pictures, N×3×H×W in [0, 1], with their holes, rolled by `shift`."""
        down, right = shift
        shown = roll_picture(torch.cat([picture, hole], 1), down, right)
        with self._runtime.autocast():
            found: Ratings = self._rate(shown.contiguous(memory_format=self._runtime.layout))
        return found

    def verdict(self, shown: Tensor, hole: Tensor, shift: Sequence[int]) -> tuple[Tensor, Ratings]:
        """Return the net's adversarial loss on filled pictures, and the ratings that it was computed from."""
        found = self.rate(shown, hole, shift)
        return generator_loss(found.logits, roll_picture(hole, *shift)), found

    def learn(
        self, number: int, learning_rate: float, batch: JudgedBatch, shift: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Run one step; returns its loss and the share of patches that it was right about."""
        filled, image, hole = batch
        self.net.requires_grad_(requires_grad=True)
        both = self.rate(torch.cat([image, filled]), torch.cat([hole, hole]), shift)
        real, fake = zip(*(scale.chunk(2) for scale in both.logits), strict=True)
        rolled = roll_picture(hole, *shift)
        loss = found = discriminator_loss(real, fake, rolled)
        knobs = self._knobs
        if knobs.penalty and number % knobs.penalty_every == 0:  # eagerly and in FP32, as it is a second-order gradient
            few = max(1, len(image) // _PENALISED)
            steep = gradient_penalty(self.net, image[:few], hole[:few])
            loss = loss + steep * (knobs.penalty / 2 * knobs.penalty_every)
        self._updates.apply(loss, learning_rate * knobs.rate)
        return found.detach(), told_apart(real, fake, rolled).detach()

    def state(self) -> dict[str, Any]:
        """Return everything that a step changes, for `load`."""
        return {"net": self.net.state_dict(), "updates": self._updates.state()}

    def load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self._updates.load(state["updates"])
