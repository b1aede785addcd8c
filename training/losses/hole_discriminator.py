"""A PatchGAN that detects filled holes, for adversarial training of a partial-convolution net.

Least squares (Mao et al., "Least Squares Generative Adversarial Networks", ICCV 2017). A filled picture is real outside
its hole, so the target score of a patch is its valid fraction, as in Zeng et al., "Aggregated Contextual
Transformations for High-Resolution Image Inpainting", TVCG 2022.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from training.losses.partial_conv import masked_mean
from training.losses.patch_gan import PatchDiscriminator


class HoleDiscriminator(nn.Module):
    """The discriminator with its own loss and the net's adversarial loss."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.patches = PatchDiscriminator(width, layers, channels=4)

    def scores(self, picture: Tensor, hole: Tensor) -> Tensor:
        """Map N×3×H×W in [0, 1] and an N×1×H×W hole to one FP32 score per patch: 1 is a photograph, 0 is filled."""
        return cast("Tensor", self.patches(torch.cat([picture * 2 - 1, hole], 1))).float()

    def generator_loss(self, composite: Tensor, hole: Tensor) -> Tensor:
        """Compute the net's loss: how far the scores of patches in the hole are from a photograph's."""
        scores = self.scores(composite, hole)
        return masked_mean((scores - 1).square(), _hole_fraction_of_patches(hole, scores))

    def forward(self, composite: Tensor, image: Tensor, hole: Tensor) -> dict[str, Tensor]:
        """Compute the discriminator's loss; `composite` must be detached."""
        real, fake = self.scores(image, hole), self.scores(composite, hole)
        missed = (fake - (1 - _hole_fraction_of_patches(hole, fake))).square().mean()
        return {"discriminator": 0.5 * ((real - 1).square().mean() + missed)}


def _hole_fraction_of_patches(hole: Tensor, scores: Tensor) -> Tensor:
    """Compute the fraction of the hole in the centre of every patch."""
    return F.interpolate(hole, scores.shape[-2:], mode="area")
