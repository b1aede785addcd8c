"""Partial-convolution U-Net, naoto0804 layout (`enc_1.conv.input_conv.weight`).

Liu et al., "Image Inpainting for Irregular Holes Using Partial Convolutions", ECCV 2018; layout and scaling of
naoto0804/pytorch-inpainting-with-partial-conv: conv(x·m)/s + b where s is the mask's sum under the window times the
channels, 0 where s is 0; batch norm except in the first and the last layer; ImageNet normalisation; output unbounded.

Net:      image N×3×H×W normalised, mask N×3×H×W with 1 = VALID; H and W multiples of 2^levels.
Contract: image N×3×H×W in [0, 1], mask N×1×H×W with 1 = FILL; output N×3×H×W on the [0, 1] scale, not clamped.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from pydantic import Field
from torch import Tensor, nn

from engines.manifest import MultipleSize
from export.generators.family import Family, GeneratorOptions, Interface, State, Translation, image_tensor
from export.lowering import compute_type
from export.partial_conv import (
    PartialConv2d,
    WindowRatio,
    counts_all_alike,
    group_counts,
    through_levels,
    with_weight,
)

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
MAX_RATIO = 60000.0
"""Soft masks can make the window's sum, and with it the ratio's divisor, arbitrarily small; FP16 ends at 65504."""


class PConvOptions(GeneratorOptions):
    """The options that distinguish nets of this family."""

    levels: int = Field(7, ge=2, le=8, description="halvings; sizes are multiples of 2^levels")
    width: int = Field(64, ge=1, le=1024, description="channels of the first layer")


def encoder_channels(options: PConvOptions) -> list[int]:
    """Return the channels before the first and after each encoder layer."""
    return [3, *(options.width * min(2**level, 8) for level in range(options.levels))]


def encoder_kernel(level: int) -> int:
    """Return the kernel side of encoder layer `level` (1, 2, …)."""
    return {1: 7, 2: 5, 3: 5}.get(level, 3)


class PartialBlock(nn.Module):
    """A partial convolution, optional batch norm and optional activation."""

    def __init__(self, channels: tuple[int, int], kernel: int, *, encodes: bool, outermost: bool) -> None:
        super().__init__()
        geometry = (2 if encodes else 1, kernel // 2)
        self.conv = PartialConv2d(channels, kernel, geometry, bias=outermost and not encodes)
        self.bn = None if outermost else nn.BatchNorm2d(channels[1])
        self.activation = _activation(encodes=encodes, outermost=outermost)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map features and mask to the block's features and mask."""
        y, mask = self.conv(x, mask)
        return self.activation(y if self.bn is None else self.bn(y)), mask


def _activation(*, encodes: bool, outermost: bool) -> nn.Module:
    if encodes:
        return nn.ReLU()
    return nn.Identity() if outermost else nn.LeakyReLU(0.2)


class PConvUNet(nn.Module):
    """The public net: `enc_1` … `enc_n`, `dec_n` … `dec_1`."""

    def __init__(self, options: PConvOptions) -> None:
        super().__init__()
        self.levels = options.levels
        channels = encoder_channels(options)
        for level in range(1, self.levels + 1):
            pair = (channels[level - 1], channels[level])
            self.add_module(
                f"enc_{level}", PartialBlock(pair, encoder_kernel(level), encodes=True, outermost=level == 1)
            )
        for level in range(self.levels, 0, -1):
            pair = (channels[level] + channels[level - 1], channels[level - 1])
            self.add_module(f"dec_{level}", PartialBlock(pair, 3, encodes=False, outermost=level == 1))

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Map a normalised N×3×H×W image and an N×3×H×W mask (1 = valid) to a normalised N×3×H×W image."""
        return through_levels(self, self.levels, image, mask)


class LoweredBlock(nn.Module):
    """A `PartialBlock` for the graph: one convolution, one count of valid pixels and one ratio.

    The batch norm's scale goes into the weights, as does 1/window: the convolution's result stays in the range of a
    mean, far from the end of FP16. Where the mask convolution is all ones, equal mask channels are carried as one, and
    `groups` tells how many features each stands for.
    """

    shift: Tensor
    kept_bias: Tensor

    def __init__(self, block: PartialBlock, groups: tuple[int, ...] | None) -> None:
        super().__init__()
        source = block.conv.input_conv
        counts = block.conv.mask_conv.weight if groups is None else group_counts(source, groups)
        self.ratio = WindowRatio(source, counts)
        scale, shift = _scale_and_shift(block.bn, source.out_channels)
        self.conv = with_weight(source, source.weight * (scale / self.ratio.window).view(-1, 1, 1, 1))
        self.activation, self.has_bias = block.activation, source.bias is not None
        self.register_buffer("shift", shift.view(1, -1, 1, 1).clone())
        bias = torch.zeros_like(shift) if source.bias is None else source.bias.detach() * scale
        self.register_buffer("kept_bias", bias.view(1, -1, 1, 1).clone())

    def forward(self, features: list[Tensor], masks: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Map features (compute type), 0 outside their FP32 masks, to the layer's features and FP32 mask."""
        kind = features[0].dtype
        ratio, valid = self.ratio(masks)
        y = self.conv(torch.cat(features, 1) if len(features) > 1 else features[0]) * ratio.clamp(
            -MAX_RATIO, MAX_RATIO
        ).to(kind)
        y = y + self.shift.to(kind)
        if self.has_bias:
            y = y + self.kept_bias.to(kind) * valid.to(kind)
        return self.activation(y), valid


def _scale_and_shift(norm: nn.BatchNorm2d | None, channels: int) -> tuple[Tensor, Tensor]:
    if norm is None:
        return torch.ones(channels), torch.zeros(channels)
    mean, variance = cast("Tensor", norm.running_mean), cast("Tensor", norm.running_var)
    scale = norm.weight.detach() / torch.sqrt(variance + norm.eps)
    return scale, norm.bias.detach() - mean * scale


class LoweredUNet(nn.Module):
    """The net rewritten for the graph, with the conversions of the tensor contract."""

    def __init__(self, net: PConvUNet) -> None:
        super().__init__()
        blocks = {name: cast("PartialBlock", block) for name, block in net.named_children()}
        self.single = counts_all_alike([block.conv for block in blocks.values()])
        self.levels, self.scale = net.levels, ImageNetScale()
        self.blocks = nn.ModuleDict()
        for level in range(1, net.levels + 1):
            deep, shallow = (
                blocks[f"enc_{level}"].conv.input_conv.out_channels,
                _input_channels(blocks[f"enc_{level}"]),
            )
            self.blocks[f"enc_{level}"] = LoweredBlock(blocks[f"enc_{level}"], self._mask_groups(shallow))
            self.blocks[f"dec_{level}"] = LoweredBlock(blocks[f"dec_{level}"], self._mask_groups(deep, shallow))

    def _mask_groups(self, *groups: int) -> tuple[int, ...] | None:
        return groups if self.single else None

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Map image and mask of the tensor contract to the output; see the module's docstring."""
        x = self.scale.normalise(image).to(compute_type(self))
        valid = 1 - mask
        features = [_zero_invalid(x, valid if self.single else valid.expand(-1, 3, -1, -1))]
        for level in range(1, self.levels + 1):
            x, m = features[-1]
            features.append(_zero_invalid(*self.blocks[f"enc_{level}"]([x], [m])))
        x, m = features.pop()
        for level in range(self.levels, 0, -1):
            skip, skip_mask = features.pop()
            up, up_mask = (F.interpolate(t, scale_factor=2.0, mode="nearest") for t in (x, m))
            y, m = self.blocks[f"dec_{level}"]([up, skip], [up_mask, skip_mask])
            x, m = _zero_invalid(y, m) if level > 1 else (y, m)
        return self.scale.restore(x.float())


def _zero_invalid(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Set features to 0 where no pixel is valid, once for all layers that read them and before they are upsampled."""
    return x * mask.to(x.dtype), mask


def _input_channels(block: PartialBlock) -> int:
    return block.conv.input_conv.in_channels


class ImageNetScale(nn.Module):
    """Normalises with ImageNet's mean and standard deviation and undoes it, in FP32."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1))

    def normalise(self, image: Tensor) -> Tensor:
        """Map [0, 1] to the scale of the net."""
        return (image - self.mean) / self.std

    def restore(self, image: Tensor) -> Tensor:
        """Map the scale of the net to [0, 1]."""
        return image * self.std + self.mean


class _ReferenceNet(nn.Module):
    """The public net behind the tensor contract."""

    def __init__(self, net: PConvUNet) -> None:
        super().__init__()
        self.net, self.scale = net, ImageNetScale()

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        return self.scale.restore(self.net(self.scale.normalise(image), (1 - mask).repeat(1, 3, 1, 1)))


class PConv(Family[PConvOptions]):
    """Partial-convolution U-Nets in the naoto0804 layout."""

    name = "pconv"
    summary = "partial-convolution U-Net (Liu et al. 2018), layout of naoto0804/pytorch-inpainting-with-partial-conv"
    options = PConvOptions

    def recognise(self, state: State) -> PConvOptions | None:
        """Recognise `enc_N.conv.input_conv.weight`: their number gives the levels, the first one the width."""
        levels = 0
        while f"enc_{levels + 1}.conv.input_conv.weight" in state:
            levels += 1
        if not 2 <= levels <= 8 or "dec_1.conv.input_conv.weight" not in state:
            return None
        return PConvOptions(levels=levels, width=state["enc_1.conv.input_conv.weight"].shape[0])

    def build(self, options: PConvOptions) -> nn.Module:
        return PConvUNet(options)

    def translate(self, state: State, options: PConvOptions) -> Translation:
        """Add mask convolutions that a file leaves out: they are ones."""
        added = {}
        complete = dict(state)
        for side in ("enc", "dec"):
            for level in range(1, options.levels + 1):
                source, key = (f"{side}_{level}.conv.{kind}_conv.weight" for kind in ("input", "mask"))
                if source in state and key not in state:
                    complete[key] = torch.ones(()).expand(state[source].shape)
                    added[key] = "ones"
        return Translation(complete, added=added)

    def interface(self, options: PConvOptions) -> Interface:
        multiple = 2**options.levels
        return Interface(
            task="inpaint",
            inputs=(image_tensor("image", 3), image_tensor("mask", 1)),
            output=image_tensor("output", 3),
            # used without measured rules: thicker holes lost their colours in crops; 24 to 48 were equally good by PSNR
            size=MultipleSize(multiple_of=multiple, sides=(256, 512), fit="pad", max_hole_radius=32),
        )

    def wrap(self, net: nn.Module, options: PConvOptions) -> nn.Module:  # noqa: ARG002 (the net knows them)
        return _ReferenceNet(cast("PConvUNet", net))

    def lower(self, net: nn.Module, options: PConvOptions) -> nn.Module:  # noqa: ARG002 (the net knows them)
        return LoweredUNet(cast("PConvUNet", net)).eval()
