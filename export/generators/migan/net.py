"""The public net of MI-GAN: separable convolutions, an encoder and a synthesis with skips; its options.

Sargsyan et al., "MI-GAN: A Simple Baseline for Image Inpainting on Mobile Devices", ICCV 2023; layout of the inference
net of Picsart-AI-Research/MI-GAN.

Net: N×4×R×R: mask - 0.5 with 1 = KNOWN, then the picture in [-1, 1] with the hole grey; to N×3×R×R, about [-1, 1].

R is fixed: each block of the synthesis adds a picture of noise that is part of the file.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from pydantic import Field, model_validator
from torch import Tensor, nn

from export.generators.family import GeneratorOptions

BOTTOM = 4
GAIN = math.sqrt(2)
"""The factor after each leaky ReLU that keeps the variance."""
_CLAMP = 256.0


class MIGANOptions(GeneratorOptions):
    """The options that distinguish nets of this family."""

    widths: str = Field(
        "128,256,512,512,512,512,512",
        pattern=r"^\d{1,4}(,\d{1,4})+$",
        description="channels at the resolution of the net, at half of it and so on, down to 4×4",
    )

    @model_validator(mode="after")
    def _widths_are_positive(self) -> MIGANOptions:
        if min(self.channels.values()) < 1 or len(self.channels) > 9:
            raise ValueError("widths are positive, and at most 9: a net of 1024×1024")
        return self

    @property
    def channels(self) -> dict[int, int]:
        """The channels at each resolution, finest first."""
        numbers = [int(number) for number in self.widths.split(",")]
        return {BOTTOM << (len(numbers) - 1 - index): number for index, number in enumerate(numbers)}

    @property
    def resolution(self) -> int:
        """The height and width of the net's pictures."""
        return next(iter(self.channels))


def leak(x: Tensor) -> Tensor:
    """Apply the activation to values that are amplified by √2 already."""
    return F.leaky_relu(x, 0.2).clamp(-_CLAMP, _CLAMP)


def activate(x: Tensor) -> Tensor:
    """Apply the public activation."""
    return leak(x * GAIN)


class Upsample(nn.Module):
    """Doubles height and width: every second pixel is kept, the others are zero, and a 4×4 filter smooths them."""

    filter_const: Tensor

    def __init__(self, channels: int, resolution: int) -> None:
        super().__init__()
        kept = torch.tensor([[1.0, 0.0], [0.0, 0.0]]).repeat(resolution // 2, resolution // 2)
        self.register_buffer("filter_const", kept[None, None])
        self.filter = nn.Conv2d(channels, channels, 4, groups=channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C×2H×2W."""
        spread = F.interpolate(x, scale_factor=2.0, mode="nearest") * self.filter_const
        return cast("Tensor", self.filter(F.pad(spread, (2, 1, 2, 1))))


class Downsample(nn.Module):
    """Halves height and width with a 4×4 filter."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.filter = nn.Conv2d(channels, channels, 4, stride=2, padding=1, groups=channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×2H×2W to N×C×H×W."""
        return cast("Tensor", self.filter(x))


class SeparableConv(nn.Module):
    """A depthwise and a pointwise convolution, each with an activation, and resampling or noise between them."""

    noise_const: Tensor
    downsample: Downsample | None
    upsample: Upsample | None

    def __init__(
        self, into: int, out: int, *, noise: int | None = None, halves: bool = False, doubles: bool = False
    ) -> None:
        """Make the layer. `noise` is the output's resolution if it adds noise, as it must if it doubles; else None."""
        super().__init__()
        self.has_noise = noise is not None
        if noise is not None:
            self.noise_strength = nn.Parameter(torch.zeros(()))
            self.register_buffer("noise_const", torch.zeros(noise, noise))
        self.conv1 = nn.Conv2d(into, into, 3, padding=1, groups=into)
        self.conv2 = nn.Conv2d(into, out, 1, bias=False)
        self.downsample = Downsample(into) if halves else None
        self.upsample = Upsample(out, noise) if doubles and noise is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C'×H'×W'."""
        x = activate(self.conv1(x))
        x = self.conv2(x if self.downsample is None else self.downsample(x))
        x = x if self.upsample is None else self.upsample(x)
        return activate(x + self.noise_const * self.noise_strength if self.has_noise else x)


class EncoderBlock(nn.Module):
    """One resolution on the way down; the first has a layer for the picture, the last does not halve."""

    def __init__(self, width: int, next_width: int | None, *, first: bool) -> None:
        super().__init__()
        if first:
            self.fromrgb = nn.Conv2d(4, width, 1)
        self.first, self.activate = first, activate
        self.conv1 = SeparableConv(width, width)
        self.conv2 = SeparableConv(width, next_width or width, halves=next_width is not None)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map features, or the net's input, to the features of the next block and those of the skip."""
        skip = self.conv1(self.activate(self.fromrgb(x)) if self.first else x)
        return self.conv2(skip), skip


class SynthesisBlock(nn.Module):
    """One resolution on the way up; all but the first double the size and the picture so far, and add noise."""

    upsample: Upsample | None

    def __init__(self, into: int, width: int, resolution: int) -> None:
        super().__init__()
        doubles = resolution > BOTTOM
        noise = resolution if doubles else None
        self.conv1 = SeparableConv(into, width, noise=noise, doubles=doubles)
        self.conv2 = SeparableConv(width, width, noise=noise)
        self.torgb = nn.Conv2d(width, 3, 1)
        self.upsample = Upsample(3, resolution) if doubles else None

    def forward(self, x: Tensor, skip: Tensor, picture: Tensor | None) -> tuple[Tensor, Tensor]:
        """Map features, the encoder's features of this resolution and the picture so far to features and picture."""
        x = self.conv2(self.conv1(x) + skip)
        colours = self.torgb(x)
        return x, colours if picture is None or self.upsample is None else self.upsample(picture) + colours


class MIGANNet(nn.Module):
    """The public inference net: `synthesis.b4` … `synthesis.bR` and `encoder.bR` … `encoder.b4`."""

    def __init__(self, options: MIGANOptions) -> None:
        super().__init__()
        widths, resolution = options.channels, options.resolution
        self.synthesis, self.encoder = nn.Module(), nn.Module()
        for side in reversed(widths):
            into = widths.get(side // 2, widths[BOTTOM])
            self.synthesis.add_module(f"b{side}", SynthesisBlock(into, widths[side], side))
        for side, width in widths.items():
            block = EncoderBlock(width, widths.get(side // 2), first=side == resolution)
            self.encoder.add_module(f"b{side}", block)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×4×R×R to N×3×R×R; see the module's docstring."""
        skips = []
        for block in self.encoder.children():
            x, skip = block(x)
            skips.append(skip)
        picture: Tensor | None = None
        for block in self.synthesis.children():
            x, picture = block(x, skips.pop(), picture)
        return cast("Tensor", picture)
