"""A discriminator on frozen features of VGG16: it rates content, where a discriminator on pixels rates grain.

Sauer et al., "Projected GANs Converge Faster", NeurIPS 2021, with small heads instead of random projections. Its
features need no training, and it still tells the fills of a converged net from photographs.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from training.losses.multi_scale_discriminator import EqualisedConv, Ratings, initialise
from training.losses.vgg16 import NormalisedFeatures

_SLOPE = 0.2
_FIRST_RATED = 2
"""Index of VGG16's first block with a head: finer blocks add little to a discriminator on pixels."""


class _Head(nn.Module):
    """Rates one block's features at every position, from the features and the hole in a window of 5×5 positions."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.mixed = EqualisedConv(channels, width, 1)
        self.near, self.far = EqualisedConv(width + 1, width, 3), EqualisedConv(width, width, 3)
        self.rated = EqualisedConv(width, 1, 1, gain=1.0)

    def forward(self, features: Tensor, hole: Tensor) -> Tensor:
        x = F.leaky_relu(self.mixed(features), _SLOPE)
        x = torch.cat([x, F.adaptive_avg_pool2d(hole, (x.shape[-2], x.shape[-1])) * 2 - 1], 1)
        for conv in (self.near, self.far):
            x = F.leaky_relu(conv(x), _SLOPE)
        return cast("Tensor", self.rated(x))


class ProjectedDiscriminator(nn.Module):
    """Heads on VGG16's blocks from the third on, which see the whole picture at half its size.

    Args:
        features: the frozen net, on the device of the pictures; not a submodule, so it is neither trained nor saved.
        width: channels of the heads.
        generator: draws the weights.
    """

    def __init__(self, features: NormalisedFeatures, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self._frozen = (features,)  # modules in a tuple are not registered
        self.heads = nn.ModuleList(_Head(channels, width) for channels in features.widths[_FIRST_RATED:])
        initialise(self, generator)

    def forward(self, shown: Tensor) -> Ratings:
        """Rate pictures, N×4×H×W: a picture in [0, 1] and its hole; H and W multiples of 32.

        The logits are at 1/8, 1/16 and 1/32 of the size, one scale for each block of `features` from the third on. No
        features to match are returned, because the perceptual loss already compares VGG16's.
        """
        half = F.avg_pool2d(shown, 2)
        hole = half[:, 3:].detach()  # its gradient is not needed, and is not deterministic on a GPU
        found = self._frozen[0](half[:, :3])[_FIRST_RATED:]
        logits = [
            head(features * features.shape[1] ** 0.5, hole) for head, features in zip(self.heads, found, strict=True)
        ]
        return Ratings(logits, [])
