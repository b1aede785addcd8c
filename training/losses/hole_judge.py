"""A PatchGAN that looks for holes in filled pictures: adversarial training of a partial-convolution net.

Least squares (Mao et al., "Least Squares Generative Adversarial Networks", ICCV 2017). A filled picture is true outside
its hole, so the right score of a patch of it is its valid part, as in Zeng et al., "Aggregated Contextual
Transformations for High-Resolution Image Inpainting", TVCG 2022.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from training.losses.partial_conv import masked_mean
from training.losses.patch_gan import PatchDiscriminator


class HoleJudge(nn.Module):
    """The discriminator with its own losses and the one that it gives the net."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.patches = PatchDiscriminator(width, layers, channels=4)

    def scores(self, picture: Tensor, hole: Tensor) -> Tensor:
        """N×3×H×W in [0, 1] and N×1×H×W hole to one FP32 score a patch: 1 is a photograph, 0 is filled in."""
        return cast("Tensor", self.patches(torch.cat([picture * 2 - 1, hole], 1))).float()

    def doubt(self, composite: Tensor, hole: Tensor) -> Tensor:
        """What the net is to make small: how far patches in the hole are from a photograph's."""
        scores = self.scores(composite, hole)
        return masked_mean((scores - 1).square(), _share(hole, scores))

    def forward(self, composite: Tensor, image: Tensor, hole: Tensor) -> dict[str, Tensor]:
        """What the discriminator is to make small; `composite` without its gradient."""
        real, fake = self.scores(image, hole), self.scores(composite, hole)
        missed = (fake - (1 - _share(hole, fake))).square().mean()
        return {"discriminator": 0.5 * ((real - 1).square().mean() + missed)}


def _share(hole: Tensor, scores: Tensor) -> Tensor:
    """The hole's part of the middle of every patch."""
    return F.interpolate(hole, scores.shape[-2:], mode="area")
