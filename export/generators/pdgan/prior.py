"""PD-GAN's stage 1, the prior: a partial-convolution encoder EN and an ordinary decoder DE (see generator.py)."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from export.lowering import InstanceNorm32, lower_norms
from export.partial_conv import PartialConv2d, WindowRatio, counts_all_alike, group_counts, masked, with_weight

_ENCODER = ((3, 1), (1, 2), (2, 4), (4, 8), (8, 8), (8, 8))
_DECODER = ((8, 8), (16, 8), (16, 4), (8, 2), (4, 1), (2, 3))
"""Channels in and out, in multiples of the width, except the 3 of pictures."""


class PriorEncoderLayer(nn.Module):
    """LeakyReLU, partial convolution, instance norm; the first layer has only the convolution, the last no norm."""

    def __init__(self, level: int, channels: tuple[int, int]) -> None:
        super().__init__()
        self.activates = level > 1
        self.conv = PartialConv2d(channels, 4, (2, 1), bias=False)
        self.norm = nn.InstanceNorm2d(channels[1], affine=True) if 1 < level < 6 else None

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map features and mask to half their size."""
        y, mask = self.conv(F.leaky_relu(x, 0.2) if self.activates else x, mask)
        return y if self.norm is None else self.norm(y), mask


class MiddleBlock(nn.Module):
    """A residual block: x + partial convolution, instance norm, ReLU, partial convolution, instance norm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_1 = PartialConv2d((channels, channels), 3, (1, 1), bias=False)
        self.conv_2 = PartialConv2d((channels, channels), 3, (1, 1), bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map features and mask to the same shapes."""
        y, mask = self.conv_1(x, mask)
        y, mask = self.conv_2(F.relu(F.instance_norm(y)), mask)
        return x + F.instance_norm(y), mask


class PriorEncoder(nn.Module):
    """The encoder EN."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for level, (into, out) in enumerate(_ENCODER, 1):
            pair = (into if level == 1 else into * width, out * width)
            self.add_module(f"Encoder_{level}", PriorEncoderLayer(level, pair))
        self.middle = nn.ModuleList(MiddleBlock(8 * width) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor) -> list[Tensor]:
        """Return the features of layers 1 to 5 and of the middle."""
        features = []
        for level in range(1, 7):
            x, mask = self.get_submodule(f"Encoder_{level}")(x, mask)
            features.append(x)
        x = features.pop()
        for block in self.middle:
            x, mask = block(x, mask)
        return [*features, x]


class PriorDecoderLayer(nn.Module):
    """ReLU and a transposed convolution, then an affine instance norm or, in the last layer, tanh."""

    def __init__(self, channels: tuple[int, int], *, last: bool) -> None:
        super().__init__()
        end = nn.Tanh() if last else nn.InstanceNorm2d(channels[1], affine=True)
        self.model = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(*channels, 4, 2, 1), end)

    def forward(self, x: Tensor) -> Tensor:
        """Map features to twice their size."""
        return cast("Tensor", self.model(x))


class PriorDecoder(nn.Module):
    """The decoder DE."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for level, (into, out) in enumerate(_DECODER, 1):
            pair = (into * width, out if level == 6 else out * width)
            self.add_module(f"Decoder_{level}", PriorDecoderLayer(pair, last=level == 6))

    def forward(self, features: list[Tensor]) -> Tensor:
        """Map the features of EN to N×3×256×256 in [-1, 1]."""
        *skips, x = features
        x = self.get_submodule("Decoder_1")(x)
        for level in range(2, 7):
            x = self.get_submodule(f"Decoder_{level}")(torch.cat([x, skips[6 - level]], 1))
        return cast("Tensor", x)


class PriorNet(nn.Module):
    """The encoder EN followed by the decoder DE."""

    EN: nn.Module
    DE: nn.Module

    def __init__(self, width: int) -> None:
        super().__init__()
        self.EN, self.DE = PriorEncoder(width), PriorDecoder(width)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Map N×3×256×256 in [-1, 1] (holes 0) and N×1×256×256 with 1 = valid to the prior in [-1, 1]."""
        return cast("Tensor", self.DE(self.EN(x, valid.expand(-1, 3, -1, -1))))


class LoweredPartialConv(nn.Module):
    """A partial convolution without bias for the graph; its result is FP32 if a norm follows.

    The stored mask weights can sum to almost 0; the quotient then exceeds FP16 until it is normalised.
    """

    def __init__(self, conv: PartialConv2d, *, single: bool, normed: bool) -> None:
        super().__init__()
        source = conv.input_conv
        self.ratio = WindowRatio(
            source, group_counts(source, (source.in_channels,)) if single else conv.mask_conv.weight
        )
        self.conv, self.normed = with_weight(source, source.weight / self.ratio.window), normed

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map features (compute type) and FP32 mask to features (FP32 if normed) and FP32 mask."""
        ratio, valid = self.ratio([mask])
        y = self.conv(masked([x], [mask])).float() * ratio
        return y if self.normed else y.to(x.dtype), valid


class LoweredEncoderLayer(nn.Module):
    """`PriorEncoderLayer` for the graph."""

    def __init__(self, layer: PriorEncoderLayer, *, single: bool) -> None:
        super().__init__()
        self.activates, norm = layer.activates, layer.norm
        self.conv = LoweredPartialConv(layer.conv, single=single, normed=norm is not None)
        self.norm = None if norm is None else InstanceNorm32(norm.weight.detach(), norm.bias.detach(), norm.eps)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map features and mask to half their size."""
        y, mask = self.conv(F.leaky_relu(x, 0.2) if self.activates else x, mask)
        return y if self.norm is None else self.norm(y).to(x.dtype), mask


class LoweredMiddleBlock(nn.Module):
    """`MiddleBlock` for the graph."""

    def __init__(self, block: MiddleBlock, *, single: bool) -> None:
        super().__init__()
        self.conv_1 = LoweredPartialConv(block.conv_1, single=single, normed=True)
        self.conv_2 = LoweredPartialConv(block.conv_2, single=single, normed=True)
        self.norm = InstanceNorm32()

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map features and mask to the same shapes."""
        y, mask = self.conv_1(x, mask)
        y, mask = self.conv_2(F.relu(self.norm(y)).to(x.dtype), mask)
        return x + self.norm(y).to(x.dtype), mask


class LoweredEncoder(nn.Module):
    """The encoder (EN in the paper) as it is exported: with a single mask channel if all mask channels are equal."""

    def __init__(self, encoder: PriorEncoder) -> None:
        super().__init__()
        convs = [module for module in encoder.modules() if isinstance(module, PartialConv2d)]
        self.single = counts_all_alike(convs)
        layers = [cast("PriorEncoderLayer", encoder.get_submodule(f"Encoder_{level}")) for level in range(1, 7)]
        self.layers = nn.ModuleList(LoweredEncoderLayer(layer, single=self.single) for layer in layers)
        blocks = [cast("MiddleBlock", block) for block in encoder.middle]
        self.middle = nn.ModuleList(LoweredMiddleBlock(block, single=self.single) for block in blocks)

    def forward(self, x: Tensor, mask: Tensor) -> list[Tensor]:
        """Return the same features as EN; the mask has 3 channels and is FP32."""
        mask = mask[:, :1] if self.single else mask
        features = []
        for layer in self.layers:
            x, mask = layer(x, mask)
            features.append(x)
        x = features.pop()
        for block in self.middle:
            x, mask = block(x, mask)
        return [*features, x]


def lowered_prior(prior: PriorNet) -> PriorNet:
    """Copy stage 1 for the graph; `prior` is unchanged."""
    lowered = lower_norms(prior)
    lowered.EN = LoweredEncoder(cast("PriorEncoder", prior.EN))
    return lowered
