"""FillNet, our own generator of fills for photographs: a residual U-Net that begins and ends at a quarter of the size.

Net:      image N×3×H×W in [0, 1], hole N×1×H×W with 1 = FILL; H and W multiples of 4·2^(levels - 1).
Contract: image and mask the same; output N×3×H×W on the [0, 1] scale, inside the mask clamped, outside it the image.

The hole is first filled smoothly from what surrounds it (push-pull over a pyramid of masked means, Gortler et al., "The
Lumigraph", 1996); the net adds to that. Four by four pixels are taken as one place with 64 channels: dense convolutions
at a quarter of the size are what processors are quick at. Colour is added at four scales; the finest has 48 channels
that are laid out as pixels, or with `painter` it is a level of its own at half the size. Convolutions, means, bilinear
enlargement, LeakyReLU and sums: no norm, no attention.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from pydantic import Field, model_validator
from torch import Tensor, nn

from engines.manifest import MultipleSize
from export.generators.family import Family, GeneratorOptions, Interface, State, image_tensor
from export.lowering import compute_type

PATCH = 4
"""Pixels down and across that are one place of the finest level."""
HALF = 2
"""Pixels down and across that are one place of the painter."""
_RGB = 3
_SLOPE = 0.2
_LEAST_SHARE = 1e-3
"""Smallest share of known pixels in a cell; soft masks leave less, and such a cell counts for as little."""
_COLOUR_SCALES = 4
_DILATED_LEVELS = (2, 3)
"""At 1/16 and 1/32 each block's first convolution takes every second place: large holes are bridged in fewer layers."""
_SIDES_SERVED = (256, 512)
"""Sides of tiles: about those of the training crops; in larger ones holes are wider than the net bridges."""
_NUMBERS = r"^\d{1,4}(,\d{1,4})*$"
MakeConv = Callable[..., nn.Module]


def parse_numbers(text: str) -> list[int]:
    """Parse the numbers of an option such as "96,192"."""
    return [int(number) for number in text.split(",")]


def _join_numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


class FillNetOptions(GeneratorOptions):
    """The options that distinguish nets of this family."""

    widths: str = Field(
        "96,192,256,256,256", pattern=_NUMBERS, description="channels at 1/4 of the size, at 1/8 and so on"
    )
    encoder: str = Field("0,0,3,2,0", pattern=_NUMBERS, description="residual blocks of each level on the way down")
    decoder: str = Field("1,2,2,1,1", pattern=_NUMBERS, description="and on the way up; the last is the bottom")
    painter: int = Field(
        0, ge=0, le=256, description="channels of a level at half the size that paints; 0: a quarter of the size paints"
    )

    @model_validator(mode="after")
    def _check_consistency(self) -> FillNetOptions:
        levels = len(self.channels)
        if not 2 <= levels == len(parse_numbers(self.encoder)) == len(parse_numbers(self.decoder)) <= 7:
            raise ValueError("widths, encoder and decoder have one number a level each, for 2 to 7 levels")
        if min(self.channels) < 1:
            raise ValueError("widths are positive")
        return self

    @property
    def channels(self) -> list[int]:
        """The channels of each level, from `widths`."""
        return parse_numbers(self.widths)

    @property
    def multiple(self) -> int:
        """The number that height and width must be multiples of."""
        return PATCH << (len(self.channels) - 1)


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
        colours.append(colour / share.clamp(min=_LEAST_SHARE) * weights[-1])
    mean = colours[-1].mean((2, 3), keepdim=True) / weights[-1].mean((2, 3), keepdim=True).clamp(min=_LEAST_SHARE)
    filled = colours[-1] + (1 - weights[-1]) * mean
    for colour, weight in zip(colours[-2::-1], weights[-2::-1], strict=True):
        filled = colour + (1 - weight) * upsample(filled)
    return filled


def make_net_input(image: Tensor, hole: Tensor, filled: Tensor) -> Tensor:
    """Make the net's input: N×64×H/4×W/4 in [-1, 1], 16 pixels for each channel of colour and for the hole.

    Pixels of the hole have the colour of their place in the smooth fill.
    """
    colours = torch.unflatten(F.pixel_unshuffle(image * (1 - hole), PATCH), 1, (_RGB, PATCH**2))
    holes = F.pixel_unshuffle(hole, PATCH)
    painted = colours + holes[:, None] * filled[:, :, None]
    return torch.cat([painted.flatten(1, 2), holes], 1) * 2 - 1


def _activation(x: Tensor) -> Tensor:
    return F.leaky_relu(x, _SLOPE)


class Residual(nn.Module):
    """x + conv(act(conv(act(x))))."""

    def __init__(self, width: int, conv: MakeConv, dilation: int = 1) -> None:
        super().__init__()
        self.first = conv(width, width, 3, padding=dilation, dilation=dilation)
        self.second = conv(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the same shape."""
        return cast("Tensor", x + self.second(_activation(self.first(_activation(x)))))


class Painter(nn.Module):
    """The level at half the size that paints the finest colour.

    A quarter of the size has filters of its own for each of a place's 4 by 4 pixels, and what differs between them
    shows as a grid. Here features are enlarged bilinearly, and all but the four pixels of a place share their filters.
    """

    def __init__(self, features: int, width: int, conv: MakeConv) -> None:
        super().__init__()
        self.stem = conv((_RGB + 1) * HALF**2, width, 3, padding=1)
        self.up = conv(features, width, 1)
        self.block = Residual(width, conv)
        self.pixels = conv(width, _RGB * HALF**2, 3, padding=1)

    def forward(self, features: Tensor, seen: Tensor) -> Tensor:
        """Paint N×12×H/2×W/2 from activated features and the net's input, both at a quarter of the size."""
        halves = F.pixel_unshuffle(F.pixel_shuffle(seen, PATCH), HALF)
        x = self.block(upsample(self.up(features)) + self.stem(halves))
        return cast("Tensor", self.pixels(_activation(x)))


class FillUNet(nn.Module):
    """The net; `conv` makes its convolutions, which training has in another form."""

    def __init__(self, options: FillNetOptions, conv: MakeConv = nn.Conv2d) -> None:
        super().__init__()
        widths = options.channels
        self.bottom = len(widths) - 1

        def blocks(level: int, count: int) -> nn.Sequential:
            dilation = 2 if level in _DILATED_LEVELS else 1
            return nn.Sequential(*(Residual(widths[level], conv, dilation) for _ in range(count)))

        self.stem = conv((_RGB + 1) * PATCH**2, widths[0], 3, padding=1)
        self.down = nn.ModuleList(conv(a, b, 3, padding=1, stride=2) for a, b in pairwise(widths))
        self.encoder = nn.ModuleList(blocks(level, count) for level, count in enumerate(parse_numbers(options.encoder)))
        self.overall = conv(widths[-1], widths[-1], 1)
        self.up = nn.ModuleList(conv(b, a, 1) for a, b in pairwise(widths))
        self.decoder = nn.ModuleList(blocks(level, count) for level, count in enumerate(parse_numbers(options.decoder)))
        self.painter = Painter(widths[0], options.painter, conv) if options.painter else None
        self.pixels = None if options.painter else conv(widths[0], _RGB * PATCH**2, 3, padding=1)
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
            x = self.encoder[level](self.down[level - 1](_activation(x)))
            skips.append(x)
        mean = _activation(x).float().mean((2, 3), keepdim=True)  # of what the whole picture looks like
        x = self.decoder[self.bottom](x + self.overall(mean.to(x.dtype)))
        colour: Tensor | None = None
        for level in range(self.bottom - 1, -1, -1):
            if level < len(self.colour):
                more = self.colour[level](_activation(x))
                colour = more if colour is None else upsample(colour) + more
            x = self.decoder[level](upsample(self.up[level](_activation(x))) + skips[level])
        coarse = upsample(cast("Tensor", colour))  # there is one: colour has an entry for the second level at least
        features = _activation(x)
        if self.painter is not None:
            return coarse, F.pixel_shuffle(self.painter(features, seen), HALF)
        return coarse, F.pixel_shuffle(cast("nn.Module", self.pixels)(features), PATCH)


class _Composite(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        painted = self.net(image, mask).clamp(0, 1)
        return cast("Tensor", image * (1 - mask) + painted * mask)


class FillNet(Family[FillNetOptions]):
    """Residual U-Nets that fill holes, trained here (docs/training.md)."""

    name = "fillnet"
    summary = "FillNet: a residual U-Net on a push-pull fill, trained with a judge of patches; our own"
    options = FillNetOptions

    def recognise(self, state: State) -> FillNetOptions | None:
        """Recognise `stem`, `overall` and what paints; `down` gives levels and widths, and blocks are counted."""
        stem, overall, pixels, painter = (
            state.get(f"{name}.weight") for name in ("stem", "overall", "pixels", "painter.pixels")
        )
        if stem is None or overall is None or (pixels is None) == (painter is None):
            return None
        if stem.shape[1] != (_RGB + 1) * PATCH**2:
            return None
        widths = [stem.shape[0]]
        while (down := state.get(f"down.{len(widths) - 1}.weight")) is not None:
            widths.append(down.shape[0])
        counts = {
            side: _join_numbers(_count_blocks(state, side, level) for level in range(len(widths))) for side in _SIDES
        }
        channels = 0 if painter is None else painter.shape[1]
        return FillNetOptions(widths=_join_numbers(widths), **counts, painter=channels)

    def build(self, options: FillNetOptions) -> nn.Module:
        return FillUNet(options)

    def interface(self, options: FillNetOptions) -> Interface:
        multiple = options.multiple
        sides = tuple(sorted({-(-side // multiple) * multiple for side in _SIDES_SERVED}))
        return Interface(
            task="inpaint",
            inputs=(image_tensor("image", _RGB), image_tensor("mask", 1)),
            output=image_tensor("output", _RGB),
            size=MultipleSize(multiple_of=multiple, sides=sides),
        )

    def wrap(self, net: nn.Module, options: FillNetOptions) -> nn.Module:  # noqa: ARG002 (the net knows them)
        return _Composite(net)

    def lower(self, net: nn.Module, options: FillNetOptions) -> nn.Module:  # noqa: ARG002 (as above)
        return _Composite(copy.deepcopy(net)).requires_grad_(requires_grad=False).eval()


_SIDES = ("encoder", "decoder")


def _count_blocks(state: State, side: str, level: int) -> int:
    """Count the residual blocks of a level in a state dict."""
    key = re.compile(rf"{side}\.{level}\.(\d+)\.first\.weight")
    return sum(key.fullmatch(name) is not None for name in state)
