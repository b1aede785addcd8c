"""Partial-convolution U-Net on NVIDIA's layer, tanimutomo layout (`enc_1.conv.weight`, no batch norm).

Liu et al., "Image Inpainting for Irregular Holes Using Partial Convolutions", ECCV 2018; layout of
tanimutomo/partialconv, layer of NVIDIA/partialconv: with s the mask's sum under the window times the channels and
ratio = window/s where s > 0, else 0 (times s where s < 1), a layer gives conv(x·m)·ratio. The only layer with a bias,
the last, gives (conv(x·m)·ratio + b)·ratio: upstream multiplies by the ratio again where the paper has the mask.

Every file has eight levels, of which seven are used; the weights of the eighth are never read.

Net:      image N×3×H×W in [0, 1], mask N×3×H×W with 1 = VALID; H and W multiples of 2^levels; output unbounded.
Contract: mask N×1×H×W with 1 = FILL; output on the [0, 1] scale, not clamped.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from pydantic import Field
from torch import Tensor, nn

from engines.manifest import MultipleSize
from export.generators.family import Family, GeneratorOptions, Interface, State, image_tensor
from export.lowering import compute_type
from export.partial_conv import group_counts, masked, through_levels, with_weight

ALLOCATED = 8


class PConvNvidiaOptions(GeneratorOptions):
    """The options that distinguish nets of this family."""

    levels: int = Field(7, ge=2, le=ALLOCATED, description="halvings in use; not visible in a file")
    width: int = Field(64, ge=1, le=1024, description="channels of the first layer")


def _encoder_channels(width: int) -> list[int]:
    return [3, *(width * min(2**level, 8) for level in range(ALLOCATED))]


class NvidiaLayer(nn.Module):
    """A partial convolution with its activation; the mask's kernel of ones is not stored in files."""

    def __init__(self, channels: tuple[int, int], kernel: int, *, encodes: bool, last: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(*channels, kernel, 2 if encodes else 1, kernel // 2, bias=last)
        self.activation = nn.ReLU() if encodes else nn.Identity() if last else nn.LeakyReLU(0.2)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map features and a mask of the same shape to the layer's features and mask."""
        conv = self.conv
        total = F.conv2d(mask, torch.ones_like(conv.weight), None, conv.stride, conv.padding)
        new_mask = total.clamp(0, 1)
        ratio = conv.weight[0].numel() / (total + 1e-8) * new_mask
        y = F.conv2d(x * mask, conv.weight, None, conv.stride, conv.padding) * ratio
        if conv.bias is not None:
            y = (y + conv.bias.view(1, -1, 1, 1)) * ratio
        return self.activation(y), new_mask


class PConvNvidiaUNet(nn.Module):
    """The public net: `enc_1` … `enc_8`, `dec_8` … `dec_1`, of which `levels` are used."""

    def __init__(self, options: PConvNvidiaOptions) -> None:
        super().__init__()
        self.levels, channels = options.levels, _encoder_channels(options.width)
        for level in range(1, ALLOCATED + 1):
            pair, kernel = (channels[level - 1], channels[level]), {1: 7, 2: 5, 3: 5}.get(level, 3)
            self.add_module(f"enc_{level}", NvidiaLayer(pair, kernel, encodes=True, last=False))
        for level in range(ALLOCATED, 0, -1):
            pair = (channels[level] + channels[level - 1], channels[level - 1])
            self.add_module(f"dec_{level}", NvidiaLayer(pair, 3, encodes=False, last=level == 1))

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Map an N×3×H×W image and mask (1 = valid) to N×3×H×W."""
        return through_levels(self, self.levels, image, mask)


class LoweredLayer(nn.Module):
    """A layer for the graph: one convolution, a count of valid pixels on 1-channel masks, an FP32 ratio without 0/0.

    Upstream's epsilon is left out: for 0/1 masks s + 1e-8 is s in FP32; in FP16 it would vanish, and one exporter
    removes it. The sum in the last layer is FP32: its ratio is applied twice.
    """

    counts: Tensor
    last_bias: Tensor | None

    def __init__(self, layer: NvidiaLayer, groups: tuple[int, ...]) -> None:
        super().__init__()
        source = layer.conv
        self.window, self.stride, self.padding = float(source.weight[0].numel()), source.stride, source.padding
        self.conv, self.activation = with_weight(source, source.weight), layer.activation
        self.register_buffer("counts", group_counts(source, groups))
        bias = None if source.bias is None else source.bias.detach().view(1, -1, 1, 1).clone()
        self.register_buffer("last_bias", bias)

    def forward(self, features: list[Tensor], masks: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Map features (compute type) and their FP32 masks to the layer's features and FP32 mask."""
        total = F.conv2d(torch.cat(masks, 1), self.counts, None, self.stride, self.padding)
        empty = (total == 0).float()
        new_mask = total.clamp(0, 1)
        ratio = self.window / (total + empty) * new_mask
        y = self.conv(masked(features, masks))
        if self.last_bias is None:
            return self.activation(y * ratio.to(y.dtype)), new_mask
        return self.activation((y.float() * ratio + self.last_bias) * ratio), new_mask


class LoweredNvidiaUNet(nn.Module):
    """The net behind the tensor contract, rewritten for the graph."""

    def __init__(self, net: PConvNvidiaUNet) -> None:
        super().__init__()
        self.levels, self.layers = net.levels, nn.ModuleDict()
        for level in range(1, net.levels + 1):
            encoder, decoder = (cast("NvidiaLayer", net.get_submodule(f"{side}_{level}")) for side in ("enc", "dec"))
            deep, shallow = encoder.conv.out_channels, encoder.conv.in_channels
            self.layers[f"enc_{level}"] = LoweredLayer(encoder, (shallow,))
            self.layers[f"dec_{level}"] = LoweredLayer(decoder, (deep, shallow))

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Map image and mask of the tensor contract to the output; see the module's docstring."""
        features = [(image.to(compute_type(self)), 1 - mask)]
        for level in range(1, self.levels + 1):
            x, m = features[-1]
            features.append(self.layers[f"enc_{level}"]([x], [m]))
        x, m = features.pop()
        for level in range(self.levels, 0, -1):
            skip, skip_mask = features.pop()
            x, m = (F.interpolate(t, scale_factor=2.0, mode="nearest") for t in (x, m))
            x, m = self.layers[f"dec_{level}"]([x, skip], [m, skip_mask])
        return x.float()


class _NvidiaReferenceNet(nn.Module):
    """The public net behind the tensor contract."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        return cast("Tensor", self.net(image, (1 - mask).repeat(1, 3, 1, 1)))


class PConvNvidia(Family[PConvNvidiaOptions]):
    """Partial-convolution U-Nets in the tanimutomo layout."""

    name = "pconv_nvidia"
    summary = "partial-convolution U-Net (Liu et al. 2018) on NVIDIA's layer, layout of tanimutomo/partialconv"
    options = PConvNvidiaOptions

    def recognise(self, state: State) -> PConvNvidiaOptions | None:
        """Recognise `enc_1.conv.weight`; a file does not tell how many levels are used, so 7 is assumed."""
        first = state.get("enc_1.conv.weight")
        if first is None or "dec_1.conv.bias" not in state:
            return None
        return PConvNvidiaOptions(levels=7, width=first.shape[0])

    def build(self, options: PConvNvidiaOptions) -> nn.Module:
        return PConvNvidiaUNet(options)

    def interface(self, options: PConvNvidiaOptions) -> Interface:
        return Interface(
            task="inpaint",
            inputs=(image_tensor("image", 3), image_tensor("mask", 1)),
            output=image_tensor("output", 3),
            size=MultipleSize(multiple_of=2**options.levels, sides=(256, 512), fit="pad"),
        )

    def wrap(self, net: nn.Module, options: PConvNvidiaOptions) -> nn.Module:  # noqa: ARG002 (the net knows them)
        return _NvidiaReferenceNet(net)

    def lower(self, net: nn.Module, options: PConvNvidiaOptions) -> nn.Module:  # noqa: ARG002 (as above)
        return LoweredNvidiaUNet(cast("PConvNvidiaUNet", net)).eval()
