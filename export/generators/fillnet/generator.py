"""FillNet, our own generator of fills for photographs: a residual U-Net that begins and ends at a quarter of the size.

Net:      image N×3×H×W in [0, 1], hole N×1×H×W with 1 = FILL; H and W multiples of 4·2^(levels - 1).
Contract: image and mask the same; output N×3×H×W on the [0, 1] scale, inside the mask clamped, outside it the image.

The hole is first filled smoothly from what surrounds it (push-pull over a pyramid of masked means, Gortler et al., "The
Lumigraph", 1996); the net adds to that. A block of 4×4 pixels is one position with 64 channels: CPUs are fast at
dense convolutions at a quarter of the size. Colour is added at four scales; the finest has 48 channels
that are laid out as pixels. The net has convolutions, means, bilinear enlargement, LeakyReLU and sums, and no norm;
with `context` also attention, at coarse levels.
"""

from __future__ import annotations

import copy
import re
from typing import cast

from torch import Tensor, nn

from engines.manifest import MultipleSize
from export.generators.family import Family, Interface, State, image_tensor
from export.generators.fillnet.net import FillUNet
from export.generators.fillnet.options import PATCH, FillNetOptions, join_numbers

_RGB = 3
_SIDES_SERVED = (256, 512)
"""Sides of tiles, about those of the training crops: in larger tiles holes can be wider than the net can fill."""


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
    summary = "FillNet: a residual U-Net on a push-pull fill, trained with patch discriminators; our own"
    options = FillNetOptions

    def recognise(self, state: State) -> FillNetOptions | None:
        """Recognise `stem`, `overall` and `pixels`; `down` gives levels and widths, and blocks are counted."""
        stem, overall, pixels = (state.get(f"{name}.weight") for name in ("stem", "overall", "pixels"))
        if stem is None or overall is None or pixels is None:
            return None
        if stem.shape[1] != (_RGB + 1) * PATCH**2:
            return None
        widths = [stem.shape[0]]
        while (down := state.get(f"down.{len(widths) - 1}.weight")) is not None:
            widths.append(down.shape[0])
        counts = {
            side: join_numbers(_count(state, rf"{side}\.{level}\.\d+\.first\.weight") for level in range(len(widths)))
            for side in _SIDES
        }
        context = [_count(state, rf"(en|de)coder\.{level}\.\d+\.query\.weight") for level in range(len(widths))]
        return FillNetOptions(widths=join_numbers(widths), **counts, context=join_numbers(context))

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


def _count(state: State, pattern: str) -> int:
    """Count the keys of a state dict that match."""
    return sum(re.fullmatch(pattern, name) is not None for name in state)
