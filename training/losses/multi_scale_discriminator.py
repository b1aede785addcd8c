"""Discriminators that see a picture with its hole and rate patches as photographed or filled.

Their weights have unit variance and are scaled when used (equalised learning rate, Karras et al., ICLR 2018). One is a
residual net with logits at 1/8, 1/16 and 1/32 of the size; the other sees small patches alone. Only logits on the hole
count: elsewhere a filled picture is the photograph itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

_SLOPE, _HE, _HEAD_WIDTH = 0.2, 1.387, 128
_MIXED, _AROUND, _CONTRAST = 3, 2, 8
_FIRST_RATED = 1
"""Index of the first block with logits: the second, at 1/8 of the size."""


class Ratings(NamedTuple):
    """The discriminator's output for N pictures."""

    logits: list[Tensor]
    """Logits, N×1×h×w each, the finest first; above 0 means photographed."""
    features: list[Tensor]
    """Features of the trunk, the finest first."""


class EqualisedConv(nn.Module):
    """A convolution whose weights are scaled at run time (equalised learning rate, Karras et al. 2018)."""

    def __init__(self, channels: int, out_channels: int, kernel: int, *, stride: int = 1, gain: float = _HE) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_channels, channels, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.scale = gain / math.sqrt(channels * kernel * kernel)
        self.stride, self.padding = stride, (kernel - 1) // 2

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight * self.scale, self.bias, self.stride, self.padding)


def _active(x: Tensor) -> Tensor:
    return F.leaky_relu(x, _SLOPE)


class _Block(nn.Module):
    """A residual block that halves the size."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.one, self.two = EqualisedConv(channels, channels, 3), EqualisedConv(channels, out_channels, 3, stride=2)
        self.skip = EqualisedConv(channels, out_channels, 1, gain=1.0)

    def forward(self, x: Tensor) -> Tensor:
        y = _active(self.two(_active(self.one(x))))
        return cast("Tensor", (y + self.skip(F.avg_pool2d(x, 2))) * math.sqrt(0.5))


class MultiScaleDiscriminator(nn.Module):
    """The discriminator; `widths` are its channels at 1/1, 1/2, … 1/32 of the size.

    Args:
        widths: six numbers of channels.
        generator: draws the weights.
    """

    def __init__(self, widths: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.pixels, self.first = EqualisedConv(4, widths[0], 3), EqualisedConv(widths[0], widths[1], 4, stride=2)
        self.blocks = nn.ModuleList(_Block(a, b) for a, b in pairwise(widths[1:]))
        self.heads = nn.ModuleList(
            nn.Sequential(
                EqualisedConv(width, _HEAD_WIDTH, 3), nn.LeakyReLU(_SLOPE), EqualisedConv(_HEAD_WIDTH, 1, 1, gain=1.0)
            )
            for width in widths[2 + _FIRST_RATED :]
        )
        initialise(self, generator)

    def forward(self, shown: Tensor) -> Ratings:
        """Rate pictures, N×4×H×W: a picture in [0, 1] and its hole; H and W multiples of 32."""
        x = _active(self.first(_active(self.pixels(shown * 2 - 1))))
        found = Ratings([], [x])
        for index, block in enumerate(self.blocks):
            x = block(x)
            found.features.append(x)
            if index >= _FIRST_RATED:
                found.logits.append(self.heads[index - _FIRST_RATED](x))
        return found


class SmallPatchDiscriminator(nn.Module):
    """Rates patches of 22 pixels at half the size: texture and grids, no objects. `widths`: at 1/1 and at 1/2.

    It sees the differences of pixels from their local mean, because beside colours a grid would be too faint to learn.
    """

    def __init__(self, widths: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        full, half = widths
        self.pixels, self.first = EqualisedConv(4, full, 3), EqualisedConv(full, half, 4, stride=2)
        self.mixed = nn.ModuleList(EqualisedConv(half, half, 3) for _ in range(_MIXED))
        self.head = EqualisedConv(half, 1, 1, gain=1.0)
        initialise(self, generator)

    def forward(self, shown: Tensor) -> Ratings:
        """Rate pictures, N×4×H×W: a picture in [0, 1] and its hole; H and W even. Returns no features to match."""
        picture, hole = shown[:, :3], shown[:, 3:]
        around = F.avg_pool2d(F.pad(picture, [_AROUND] * 4, mode="reflect"), 2 * _AROUND + 1, 1)
        x = torch.cat([(picture - around) * _CONTRAST, hole * 2 - 1], 1)
        x = _active(self.first(_active(self.pixels(x))))
        for conv in self.mixed:
            x = _active(conv(x))
        return Ratings([self.head(x)], [])


def initialise(net: nn.Module, generator: torch.Generator) -> None:
    """Draw the weights of a discriminator's convolutions."""
    for module in net.modules():
        if isinstance(module, EqualisedConv):
            nn.init.normal_(module.weight, generator=generator)


def _logits_on_hole(hole: Tensor, logits: Tensor) -> Tensor:
    """Return which logits are on the hole: N×1×h×w, 0 or 1."""
    return F.max_pool2d(hole, hole.shape[-1] // logits.shape[-1])


def _mean_on_hole(values: Tensor, hole: Tensor) -> Tensor:
    """Return the mean of the values (of the logits' shape) on the hole."""
    weights = _logits_on_hole(hole, values)
    return (values * weights).sum() / weights.sum().clamp(min=1)


def generator_loss(logits: Sequence[Tensor], hole: Tensor) -> Tensor:
    """Return the generator's loss, the non-saturating one of Goodfellow et al. 2014, mean over scales, FP32."""
    return torch.stack([_mean_on_hole(F.softplus(-scale.float()), hole) for scale in logits]).mean()


def discriminator_loss(real: Sequence[Tensor], fake: Sequence[Tensor], hole: Tensor) -> Tensor:
    """Return the discriminator's loss on photographs and on fills, mean over scales, FP32."""
    pairs = zip(real, fake, strict=True)
    return torch.stack([_mean_on_hole(F.softplus(-r.float()) + F.softplus(f.float()), hole) for r, f in pairs]).mean()


def patch_accuracy(real: Sequence[Tensor], fake: Sequence[Tensor], hole: Tensor) -> Tensor:
    """Return a discriminator's accuracy on patches on the hole, mean over scales; 0.5 by chance."""
    right = [((r > 0).float() + (f < 0).float()) / 2 for r, f in zip(real, fake, strict=True)]
    return torch.stack([_mean_on_hole(scale, hole) for scale in right]).mean()


def feature_matching_loss(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> Tensor:
    """Return the feature matching loss (Salimans et al. 2016): relative mean |difference|, summed over layers, FP32.

    The finest features, which see single pixels, are left out.
    """
    gaps = [
        (f.float() - w.float()).abs().mean() / (w.float().abs().mean() + 1e-3)
        for f, w in zip(found[1:], wanted[1:], strict=True)
    ]
    return torch.stack(gaps).sum()


def gradient_penalty(judge: nn.Module, image: Tensor, hole: Tensor) -> Tensor:
    """Return R1 (Mescheder et al., ICML 2018): mean squared norm of the logits' gradient at photographs in [-1, 1]."""
    image = image.detach().clone().requires_grad_()
    logits = judge(torch.cat([image, hole], 1)).logits
    sums = [
        (scale * _logits_on_hole(hole, scale)).sum() / (scale.shape[-1] * scale.shape[-2]) ** 0.5 for scale in logits
    ]
    (gradient,) = torch.autograd.grad(torch.stack(sums).sum(), image, create_graph=True)
    return gradient.square().sum((1, 2, 3)).mean() / 4
