"""The judges of FillNet's fills: discriminators, each with its optimiser, its R1 and its accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from export.generators.family import State
from training.fill_config import FillConfig
from training.judge_config import DiscriminatorConfig
from training.loop.replay import Rate
from training.loop.runtime import Runtime
from training.loop.updates import OptimiserUpdates, UpdateSettings
from training.losses.multi_scale_discriminator import (
    MultiScaleDiscriminator,
    Ratings,
    SmallPatchDiscriminator,
    discriminator_loss,
    feature_matching_loss,
    generator_loss,
    gradient_penalty,
    patch_accuracy,
)
from training.losses.projected_discriminator import ProjectedDiscriminator
from training.losses.vgg16 import NormalisedFeatures
from training.run_config import FitConfig
from training.weights.initial import load_initial

ADVERSARIAL = "adversarial"
"""Name of the judge of large patches: every run has it, and its features are matched."""
_CLIP_NORM = 50.0
"""Norm to which a judge's gradients are clipped; only spikes exceed it."""
_RGB = 3
_PENALISED = 4
"""R1 is computed on one of this many pictures."""


class JudgedBatch(NamedTuple):
    """A batch for judges: photographs and fills, each with its hole, N×4×H×W, rolled; image and hole, not rolled."""

    real: Tensor
    filled: Tensor
    image: Tensor
    hole: Tensor


def in_fp32(state: State) -> State:
    """Convert tensors to FP32: a judge is saved in FP16 and trained further in FP32."""
    return {key: tensor.float() for key, tensor in state.items()}


class _Parts(NamedTuple):
    """The functions of a judge that can be compiled."""

    rate: Callable[[Tensor], Any]
    generator_losses: Callable[[Tensor, Sequence[Tensor]], Any]
    discriminator_loss: Callable[[Tensor], Any]


class FillJudge:
    """A discriminator on a device; pictures reach it rolled, so that it shares no grid with the net."""

    def __init__(self, net: nn.Module, options: DiscriminatorConfig, config: FitConfig, runtime: Runtime) -> None:
        if options.initial is not None:
            load_initial(net, options.initial, in_fp32)
        runtime.move_to_device(net)
        self.net, self._options, self._runtime = net, options, runtime
        self._updates = OptimiserUpdates(net, config, runtime, UpdateSettings(options.betas, _CLIP_NORM))
        self._parts = self._eager = _Parts(net, self._generator_losses, self._discriminator_loss)

    def compile(self, *, wanted: bool) -> None:
        """Rate pictures with compiled code from now on, or with the net itself."""
        self._parts = _Parts(*(torch.compile(part, dynamic=False) for part in self._eager)) if wanted else self._eager

    def freeze(self) -> None:
        """Compute no gradients of the judge's weights until the next `learn`."""
        self.net.requires_grad_(requires_grad=False)

    def rate(self, shown: Tensor) -> Ratings:
        """Rate pictures with their holes, N×4×H×W: in [0, 1], rolled."""
        with self._runtime.autocast():
            found: Ratings = self._parts.rate(shown)
        return found

    def generator_losses(self, shown: Tensor, wanted: Sequence[Tensor] = ()) -> list[Tensor]:
        """Return the net's adversarial loss on filled pictures and, with `wanted`, its feature matching loss."""
        with self._runtime.autocast():
            found: list[Tensor] = self._parts.generator_losses(shown, wanted)
        return found

    def _generator_losses(self, shown: Tensor, wanted: Sequence[Tensor]) -> list[Tensor]:
        found: Ratings = self.net(shown)
        matching = [feature_matching_loss(found.features, wanted)] if wanted else []
        return [generator_loss(found.logits, shown[:, _RGB:].detach()), *matching]

    def _discriminator_loss(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """Return the judge's loss and accuracy on N photographs followed by N fills, 2N×4×H×W."""
        found: Ratings = self.net(both)
        real, fake = zip(*(scale.chunk(2) for scale in found.logits), strict=True)
        hole = both[: len(both) // 2, _RGB:]
        return discriminator_loss(real, fake, hole), patch_accuracy(real, fake, hole)

    def is_penalised(self, number: int) -> bool:
        """Whether R1 is computed in a step."""
        return self._options.penalty > 0 and number % self._options.penalty_every == 0

    def learn(self, learning_rate: Rate, batch: JudgedBatch, *, penalised: bool) -> tuple[Tensor, Tensor]:
        """Run one step of the judge; returns its loss and its accuracy on patches."""
        self.net.requires_grad_(requires_grad=True)
        with self._runtime.autocast():
            loss, accuracy = self._parts.discriminator_loss(torch.cat([batch.real, batch.filled]))
        found, options = loss.detach(), self._options
        if penalised:  # eagerly and in FP32, as it is a second-order gradient
            penalised_count = max(1, len(batch.image) // _PENALISED)
            r1 = gradient_penalty(self.net, batch.image[:penalised_count], batch.hole[:penalised_count])
            loss = loss + r1 * (options.penalty / 2 * options.penalty_every)
        self._updates.apply(loss, learning_rate * options.rate)
        return found, accuracy.detach()

    def state(self) -> dict[str, Any]:
        """Return everything that a step changes, for `load`."""
        return {"net": self.net.state_dict(), "updates": self._updates.state()}

    def load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self._updates.load(state["updates"])


def make_judges(
    config: FillConfig, runtime: Runtime, features: NormalisedFeatures | None, generator: torch.Generator
) -> dict[str, FillJudge]:
    """Make the judges that a config has, by the names of their shares; `generator` draws their weights."""
    large = MultiScaleDiscriminator(config.judge.widths, generator)
    judges = {ADVERSARIAL: FillJudge(large, config.judge, config, runtime)}
    if small := config.patches:
        judges["patches"] = FillJudge(SmallPatchDiscriminator(small.widths, generator), small, config, runtime)
    if (options := config.projected) and features is not None:
        net = ProjectedDiscriminator(features, options.width, generator)
        judges["projected"] = FillJudge(net, options, config, runtime)
    return judges


def judge_section(name: str) -> str:
    """Return the name of a judge's section in configs and checkpoints."""
    return "judge" if name == ADVERSARIAL else name
