"""The net's modules: the push-pull fill and the residual U-Net on it."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from export.generators.fillnet.attention import Attention, MakeConv, activation
from export.generators.fillnet.options import PATCH, FillNetOptions, parse_numbers
from export.lowering import compute_type

_RGB = 3
_MIN_SHARE = 1e-3
"""Smallest divisor for the share of known pixels in a cell; soft masks can leave less, and such cells hardly count."""
_COLOUR_SCALES = 4
_DILATED_LEVELS = (2, 3)
"""Levels (1/16 and 1/32) where each block's first convolution has dilation 2, to bridge large holes in fewer layers."""

_KEY_LEVEL = 3
"""Level (1/32 of the size) of the keys and values of attention: at 1/16 attention would take 4 times as long."""


def downsample(x: Tensor) -> Tensor:
    """Halve height and width: the means of two by two pixels."""
    return F.avg_pool2d(x, 2)


def upsample(x: Tensor) -> Tensor:
    """Double height and width, bilinear."""
    return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


def push_pull(image: Tensor, known: Tensor, halvings: int) -> Tensor:
    """Compute a smooth fill at a quarter of the size, N×3×H/4×W/4 FP32, from the known pixels of a picture.

    A pyramid of means of known pixels is built; a cell counts as known if a quarter of it is. The mean of all known
    pixels fills what is unknown at the top. On the way down each level fills what the finer one does not know.

    Args:
        image: N×3×H×W in [0, 1].
        known: N×1×H×W, 1 = known.
        halvings: levels of the pyramid below a quarter of the size.
    """
    colour, share = F.avg_pool2d(image * known, PATCH), F.avg_pool2d(known, PATCH)
    colours: list[Tensor] = []
    weights: list[Tensor] = []
    for level in range(halvings + 1):
        if level:
            colour, share = downsample(colours[-1]), downsample(weights[-1])
        weights.append((share * 4).clamp(max=1))
        colours.append(colour / share.clamp(min=_MIN_SHARE) * weights[-1])
    mean = colours[-1].mean((2, 3), keepdim=True) / weights[-1].mean((2, 3), keepdim=True).clamp(min=_MIN_SHARE)
    filled = colours[-1] + (1 - weights[-1]) * mean
    for colour, weight in zip(colours[-2::-1], weights[-2::-1], strict=True):
        filled = colour + (1 - weight) * upsample(filled)
    return filled


def make_net_input(image: Tensor, hole: Tensor, filled: Tensor) -> Tensor:
    """Make the net's input: N×64×H/4×W/4 in [-1, 1], 16 pixels for each channel of colour and for the hole.

    Pixels of the hole have the colour of their 4×4 block in the smooth fill.
    """
    colours = torch.unflatten(F.pixel_unshuffle(image * (1 - hole), PATCH), 1, (_RGB, PATCH**2))
    holes = F.pixel_unshuffle(hole, PATCH)
    painted = colours + holes[:, None] * filled[:, :, None]
    return torch.cat([painted.flatten(1, 2), holes], 1) * 2 - 1


class Residual(nn.Module):
    """x + conv(act(conv(act(x))))."""

    def __init__(self, width: int, conv: MakeConv, dilation: int = 1) -> None:
        super().__init__()
        self.first = conv(width, width, 3, padding=dilation, dilation=dilation)
        self.second = conv(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the same shape."""
        return cast("Tensor", x + self.second(activation(self.first(activation(x)))))


class FillUNet(nn.Module):
    """The net; `conv` makes its convolutions, because training uses another class for them."""

    def __init__(self, options: FillNetOptions, conv: MakeConv = nn.Conv2d) -> None:
        super().__init__()
        widths = options.channels
        self.bottom = len(widths) - 1

        def blocks(level: int, count: int) -> list[nn.Module]:
            dilation = 2 if level in _DILATED_LEVELS else 1
            return [Residual(widths[level], conv, dilation) for _ in range(count)]

        def attention(level: int, *, up: int) -> list[nn.Module]:
            cell = 2 ** max(0, min(_KEY_LEVEL, self.bottom) - level)
            return [Attention(widths[level], conv, cell) for _ in range((options.attention[level] + up) // 2)]

        self.stem = conv((_RGB + 1) * PATCH**2, widths[0], 3, padding=1)
        self.down = nn.ModuleList(conv(a, b, 3, padding=1, stride=2) for a, b in pairwise(widths))
        self.encoder = nn.ModuleList(
            nn.Sequential(*blocks(level, count), *attention(level, up=0))
            for level, count in enumerate(parse_numbers(options.encoder))
        )
        self.overall = conv(widths[-1], widths[-1], 1)
        self.up = nn.ModuleList(conv(b, a, 1) for a, b in pairwise(widths))
        self.decoder = nn.ModuleList(
            nn.Sequential(*attention(level, up=1), *blocks(level, count))
            for level, count in enumerate(parse_numbers(options.decoder))
        )
        self.pixels = conv(widths[0], _RGB * PATCH**2, 3, padding=1)
        self.colour = nn.ModuleList(conv(width, _RGB, 1) for width in widths[1:_COLOUR_SCALES])

    def forward(self, image: Tensor, hole: Tensor) -> Tensor:
        """Return the picture before clamping, about [0, 1], FP32; its values outside the hole mean nothing."""
        image, hole = image.float(), hole.float()
        filled = push_pull(image, 1 - hole, self.bottom)
        seen = make_net_input(image, hole, filled).to(compute_type(self))
        coarse, fine = self.residual(seen)
        return upsample(upsample(filled + coarse.float() * 0.5)) + fine.float() * 0.5

    def residual(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Compute what is added to the smooth fill, N×3×H/4×W/4, and to its pixels, N×3×H×W, from the net's input.

        Both are on the [-1, 1] scale; the input is that of `make_net_input`.
        """
        x = self.encoder[0](self.stem(seen))
        skips = [x]
        for level in range(1, self.bottom + 1):
            x = self.encoder[level](self.down[level - 1](activation(x)))
            skips.append(x)
        mean = activation(x).float().mean((2, 3), keepdim=True)  # a summary of the whole picture
        x = self.decoder[self.bottom](x + self.overall(mean.to(x.dtype)))
        colour: Tensor | None = None
        for level in range(self.bottom - 1, -1, -1):
            if level < len(self.colour):
                more = self.colour[level](activation(x))
                colour = more if colour is None else upsample(colour) + more
            x = self.decoder[level](upsample(self.up[level](activation(x))) + skips[level])
        coarse = upsample(cast("Tensor", colour))  # there is one: colour has an entry for the second level at least
        return coarse, F.pixel_shuffle(self.pixels(activation(x)), PATCH)
