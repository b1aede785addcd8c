"""PatchGANs that look at several scales of a picture, and the losses on their scores and features (Wang et al. 2018).

Layout as in NVIDIA/pix2pixHD (`MultiscaleDiscriminator`): equal nets, each on a picture half as large as the
previous one's. Scores are FP32: near 1, the target of least squares, bf16 has steps of 1/128, and a score within half
a step of it would have no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from training.losses.patch_gan import adversarial_loss

_MAX_CHANNELS = 512


class ScaleRatings(NamedTuple):
    """Scores and features of N pictures by the discriminator of one scale."""

    scores: Tensor
    """N×1×h×w FP32, near 1 where a patch looks real."""
    features: list[Tensor]
    """The outputs of the layers before it."""


class PatchStages(nn.Module):
    """The discriminator of one scale: stages of convolution, instance norm and leaky ReLU, then a score a patch."""

    def __init__(self, channels: int, width: int, layers: int) -> None:
        super().__init__()
        widths = [min(width * 2**layer, _MAX_CHANNELS) for layer in range(layers + 1)]
        self.stages = nn.ModuleList([nn.Sequential(nn.Conv2d(channels, width, 4, 2, 2), nn.LeakyReLU(0.2))])
        for layer, (before, after) in enumerate(pairwise(widths), 1):
            conv = nn.Conv2d(before, after, 4, 2 if layer < layers else 1, 2)
            self.stages.append(nn.Sequential(conv, nn.InstanceNorm2d(after), nn.LeakyReLU(0.2)))
        self.score = nn.Conv2d(widths[-1], 1, 4, 1, 2)

    def forward(self, shown: Tensor) -> ScaleRatings:
        """Rate N×C×H×W."""
        x, features = shown, []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        with torch.autocast(x.device.type, enabled=False):
            return ScaleRatings(cast("Tensor", self.score(x.float())), features)


class ScaledPatchGAN(nn.Module):
    """The discriminators of all scales; `channels` counts those of the input and of the rated picture together."""

    def __init__(self, channels: int, width: int, layers: int, scales: int) -> None:
        super().__init__()
        self.scales = nn.ModuleList(PatchStages(channels, width, layers) for _ in range(scales))

    def forward(self, source: Tensor, picture: Tensor) -> list[ScaleRatings]:
        """Rate N×C×H×W inputs with their pictures N×3×H×W in [-1, 1], at each scale."""
        shown, found = torch.cat([source, picture], 1), []
        for index, net in enumerate(self.scales):
            shown = halve(shown) if index else shown
            found.append(net(shown))
        return found


def halve(pictures: Tensor) -> Tensor:
    """Halve height and width as pix2pixHD's nets do: means of 3×3 pixels, without pixels beyond the border."""
    return F.avg_pool2d(pictures, 3, 2, 1, count_include_pad=False)


def scaled_adversarial_loss(ratings: Sequence[ScaleRatings], *, real: bool) -> Tensor:
    """Return the mean squared distance of scores from `real`, summed over scales, an FP32 scalar."""
    return torch.stack([adversarial_loss(scale.scores, "lsgan", real=real) for scale in ratings]).sum()


def scaled_matching_loss(found: Sequence[ScaleRatings], wanted: Sequence[ScaleRatings]) -> Tensor:
    """Return the mean |difference| of features, weighted as upstream: 4 over the stages, mean over scales; FP32."""
    gaps = [
        4 / len(f.features) * (one.float() - other.float()).abs().mean()
        for f, w in zip(found, wanted, strict=True)
        for one, other in zip(f.features, w.features, strict=True)
    ]
    return torch.stack(gaps).sum() / len(found)
