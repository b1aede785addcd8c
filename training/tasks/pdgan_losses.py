"""The losses of PD-GAN's nets, each a module that is compiled with its net.

All losses are computed on fills put into their pictures, as they are served: the generator cannot reproduce the pixels
around a hole exactly, so discriminators would tell its raw outputs by those.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from export.generators.pdgan.generator import PDGANNet
from training.losses.diverse_fills import diversity_loss, generator_hinge_loss, hinge_loss
from training.losses.partial_conv import masked_mean, perceptual_distance, total_variation
from training.losses.scaled_patch_gan import ScaledPatchGAN, ScaleRatings, scaled_matching_loss
from training.losses.vgg16 import VGG16Features
from training.pdgan_config import PDGANPhase

FILLS = 2
"""Fills of each hole in a step: the diversity loss compares two."""


class PriorLosses(nn.Module):
    """The losses of stage 1."""

    def __init__(self, nets: PDGANNet, features: VGG16Features | None, phase: PDGANPhase) -> None:
        super().__init__()
        self.prior, self.phase = nets.prior, phase
        self.features = features if phase.perceptual else None

    def forward(self, image: Tensor, valid: Tensor) -> dict[str, Tensor]:
        """Compute the losses for N×3×256×256 in [-1, 1] and N×1×256×256, 1 = valid, FP32."""
        output = self.prior(image * valid, valid)
        gap = (output - image).abs()
        terms = {"hole": masked_mean(gap, 1 - valid), "valid": masked_mean(gap, valid)}
        if self.features is not None:
            terms["perceptual"] = perceptual_distance(*compared_features(self.features, output, image))
        return terms | {"loss": _weighted_sum(terms, self.phase)}


class DiverseLosses(nn.Module):
    """The losses of the generator; the discriminators get no gradient here."""

    def __init__(
        self, nets: PDGANNet, judge: ScaledPatchGAN, features: VGG16Features | None, phase: PDGANPhase
    ) -> None:
        super().__init__()
        self.generator, self.judge, self.features, self.phase = nets.PDGAN, judge, features, phase

    def forward(self, image: Tensor, valid: Tensor, prior: Tensor, latents: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Map N pictures, masks, priors and N×2×Z latents to 2·N filled pictures (two of each in a row) and losses."""
        generator, phase = cast("nn.Module", self.generator), self.phase
        rows = torch.arange(len(image), device=image.device).repeat_interleave(FILLS)
        output = generator(latents.flatten(0, 1), prior, valid, rows)
        truth, hole = image[rows], (1 - valid)[rows]
        filled = torch.where(hole > 0, output, truth)
        found = self.judge(hole, filled)
        with torch.no_grad():
            wanted = [_repeat_ratings(scale, rows) for scale in self.judge(1 - valid, image)]
        terms = {"adversarial": generator_hinge_loss(found), "l1": masked_mean((output - truth).abs(), hole)}
        if phase.matching:
            terms["matching"] = scaled_matching_loss(found, wanted)
        if phase.total_variation:
            terms["total_variation"] = total_variation(filled, hole)
        terms |= self._feature_losses(filled, image)
        return filled, terms | {"loss": _weighted_sum(terms, phase)}

    def _feature_losses(self, filled: Tensor, image: Tensor) -> dict[str, Tensor]:
        """Compute the losses on VGG16's features from one pass for both: VGG16 is the costliest net of a step."""
        phase, terms, layers = self.phase, dict[str, Tensor](), [filled]
        if self.features is not None and (phase.diversity or phase.perceptual):
            layers, wanted = compared_features(self.features, filled, image)
            if phase.perceptual:
                terms["perceptual"] = perceptual_distance(layers, wanted)
        if phase.diversity:
            terms["diversity"] = diversity_loss(
                [layer[::FILLS] for layer in layers], [layer[1::FILLS] for layer in layers]
            )
        return terms


class DiscriminatorLosses(nn.Module):
    """The losses of the discriminators on pictures and on both fills of each."""

    def __init__(self, judge: ScaledPatchGAN) -> None:
        super().__init__()
        self.judge = judge

    def forward(self, image: Tensor, valid: Tensor, filled: Tensor) -> dict[str, Tensor]:
        """Compute the losses of N pictures and of 2·N filled ones, which must be detached."""
        hole = 1 - valid
        real = hinge_loss(self.judge(hole, image), real=True)
        fake = hinge_loss(self.judge(hole.repeat_interleave(FILLS, 0), filled), real=False)
        return {"real": real, "fake": fake, "discriminator": real + fake}


def _repeat_ratings(ratings: ScaleRatings, rows: Tensor) -> ScaleRatings:
    return ScaleRatings(ratings.scores[rows], [layer[rows] for layer in ratings.features])


def compared_features(features: VGG16Features, output: Tensor, image: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return the features of pictures in [-1, 1] and of their originals, or of half as many: each of two in a row."""
    with torch.no_grad():
        wanted = features(image / 2 + 0.5).activations
        wanted = [layer.repeat_interleave(len(output) // len(image), 0) for layer in wanted]
    return features(output / 2 + 0.5).activations, wanted


def _weighted_sum(terms: dict[str, Tensor], phase: PDGANPhase) -> Tensor:
    return torch.stack([getattr(phase, name) * value for name, value in terms.items()]).sum()
