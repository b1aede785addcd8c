"""The generator rewritten for a graph, with batch norms folded and transforms as matrix products.

Local and global features stay in one tensor, so that one convolution of all features makes the local ones.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from export.generators.lama.fourier import FourierMatrices, fourier_matrices, from_spectrum, spectrum
from export.generators.lama.net import (
    FourierBlock,
    FourierLayer,
    FourierUnit,
    LaMaNet,
    SpectralTransform,
    output_activation,
    tiles_as_channels,
)
from export.lowering import compute_type


def _scale_and_shift(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    mean, variance = cast("Tensor", norm.running_mean), cast("Tensor", norm.running_var)
    scale = norm.weight / torch.sqrt(variance + norm.eps)
    return scale.detach(), (norm.bias - mean * scale).detach()


def bare_conv(weight: Tensor, bias: Tensor | None, stride: int = 1) -> nn.Conv2d:
    """Make a convolution without padding: the reflected border is added in a separate step."""
    out, into, kernel = weight.shape[:3]
    conv = nn.Conv2d(into, out, kernel, stride, bias=bias is not None)
    conv.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    if bias is not None:
        conv.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return conv


def _normed(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    scale, shift = _scale_and_shift(norm)
    return bare_conv(conv.weight * scale.view(-1, 1, 1, 1), shift)


def _weight(layer: FourierLayer, name: str) -> Tensor:
    return cast("nn.Conv2d", layer.ffc.get_submodule(f"conv{name}")).weight


class LoweredUnit(nn.Module):
    """A Fourier unit; its matrices are an argument, because all units of a net share them."""

    def __init__(self, unit: FourierUnit) -> None:
        super().__init__()
        self.conv = _normed(unit.conv_layer, unit.bn)

    def forward(self, x: Tensor, matrices: FourierMatrices) -> Tensor:
        """Map N×C×H×W to the same shape."""
        return from_spectrum(torch.relu(self.conv(spectrum(x, matrices))), matrices)


class LoweredSpectral(nn.Module):
    """A spectral transform; the scale of the norm after it is folded into its last convolution."""

    def __init__(self, source: SpectralTransform, scale: Tensor) -> None:
        super().__init__()
        self.first = _normed(cast("nn.Conv2d", source.conv1[0]), cast("nn.BatchNorm2d", source.conv1[1]))
        self.unit = LoweredUnit(source.fu)
        self.tiles = None if source.lfu is None else LoweredUnit(source.lfu)
        self.last = bare_conv(source.conv2.weight * scale.view(-1, 1, 1, 1), None)

    def forward(self, x: Tensor, matrices: FourierMatrices) -> Tensor:
        """Map N×C×H×W to the same shape."""
        y = torch.relu(self.first(x))
        total = y + self.unit(y, matrices)
        if self.tiles is not None:
            small = tiles_as_channels(y)
            tiled = self.tiles(small, fourier_matrices(small))
            total = total + torch.cat([torch.cat([tiled, tiled], 2)] * 2, 3)
        return cast("Tensor", self.last(total))


class LoweredLayer(nn.Module):
    """A Fourier layer on local and global features in one tensor.

    One convolution of all features makes the local ones, where the public net has two.
    """

    def __init__(self, layer: FourierLayer) -> None:
        super().__init__()
        scale, shift = _scale_and_shift(layer.bn_l)
        into_local = torch.cat([_weight(layer, "l2l"), _weight(layer, "g2l")], 1) * scale.view(-1, 1, 1, 1)
        self.to_local = bare_conv(into_local, shift)
        scale, shift = _scale_and_shift(layer.bn_g)
        self.to_global = bare_conv(_weight(layer, "l2g") * scale.view(-1, 1, 1, 1), shift)
        self.spectral = LoweredSpectral(cast("SpectralTransform", layer.ffc.get_submodule("convg2g")), scale)
        self.local = self.to_local.out_channels

    def forward(self, x: Tensor, matrices: FourierMatrices) -> Tensor:
        """Map N×C×H×W to the same shape."""
        wide = F.pad(x, (1, 1, 1, 1), mode="reflect")
        overall = self.to_global(wide[:, : self.local]) + self.spectral(x[:, self.local :], matrices)
        return torch.relu(torch.cat([self.to_local(wide), overall], 1))


class LoweredBlock(nn.Module):
    """Two Fourier layers and a residual."""

    def __init__(self, block: FourierBlock) -> None:
        super().__init__()
        self.first, self.second = LoweredLayer(block.conv1), LoweredLayer(block.conv2)

    def forward(self, x: Tensor, matrices: FourierMatrices) -> Tensor:
        """Map N×C×H×W to the same shape."""
        return x + cast("Tensor", self.second(self.first(x, matrices), matrices))


class _Down(nn.Module):
    """One of the first layers: a reflected border, a convolution to all features, ReLU."""

    def __init__(self, layer: FourierLayer) -> None:
        super().__init__()
        parts = [(_weight(layer, "l2l"), layer.bn_l)]
        parts += [(_weight(layer, "l2g"), layer.bn_g)] if hasattr(layer, "bn_g") else []
        folded = [
            (weight * _scale_and_shift(norm)[0].view(-1, 1, 1, 1), _scale_and_shift(norm)[1]) for weight, norm in parts
        ]
        stride = cast("nn.Conv2d", layer.ffc.get_submodule("convl2l")).stride[0]
        self.conv = bare_conv(
            torch.cat([weight for weight, _ in folded]), torch.cat([bias for _, bias in folded]), stride
        )
        self.border = self.conv.kernel_size[0] // 2

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(F.pad(x, (self.border,) * 4, mode="reflect")))


class LoweredLaMa(nn.Module):
    """The whole net behind the tensor contract."""

    def __init__(self, net: LaMaNet) -> None:
        super().__init__()
        layers = list(net.model)
        self.down = nn.ModuleList(_Down(layer) for layer in layers if isinstance(layer, FourierLayer))
        blocks = [LoweredBlock(layer) for layer in layers if isinstance(layer, FourierBlock)]
        ups = [
            fuse_conv_bn_eval(layer, cast("nn.BatchNorm2d", norm), transpose=True)
            for layer, norm in pairwise(layers)
            if isinstance(layer, nn.ConvTranspose2d)
        ]
        outer = isinstance(layers[-3], FourierBlock)
        self.outer = blocks.pop() if outer else None
        self.blocks, self.up = nn.ModuleList(blocks), nn.ModuleList(ups)
        last = cast("nn.Conv2d", layers[-1])
        self.last = bare_conv(last.weight, cast("Tensor", last.bias))
        self.output = net.output

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Map an image N×3×H×W in [0, 1] and a mask N×1×H×W (1 = hole) to N×3×H×W."""
        x = torch.cat([image * (1 - mask), mask], 1).to(compute_type(self))
        for layer in self.down:
            x = layer(x)
        x = self.through_blocks(x)
        for layer in self.up:
            x = torch.relu(layer(x))
        if self.outer is not None:
            x = self.outer(x, fourier_matrices(x))
        x = self.last(F.pad(x, (3, 3, 3, 3), mode="reflect"))
        return output_activation(x.float(), self.output)

    def through_blocks(self, x: Tensor) -> Tensor:
        """Apply all blocks except an outer one: N×C×H×W to the same shape."""
        matrices = fourier_matrices(x)
        for block in self.blocks:
            x = block(x, matrices)
        return x
