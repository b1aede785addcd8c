"""The generator in the form for a GPU's program: local and global features apart, the transform with channels last.

Each layer has one convolution for each input instead of one for each output, so features are never joined and split
again; 1×1 convolutions of the spectral transform are products over the channels (ADR 55). Nets with local
Fourier units or an outer Fourier block keep the graph's form (`fits`): none of them was measured.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from export.generators.lama.lowered import LoweredBlock, LoweredLaMa, LoweredLayer, LoweredSpectral, bare_conv
from export.generators.lama.net import LaMaNet, LaMaOptions
from export.generators.lama.products import FourierProducts

Pair: TypeAlias = tuple[Tensor, Tensor]
"""Local and global features, N×C×H×W each."""


def fits(options: LaMaOptions) -> bool:
    """Return whether a net with these options can be put into this form."""
    return not (options.lfu or options.out_ratio)


class SplitSpectral(nn.Module):
    """A spectral transform of N×H×W×C."""

    def __init__(self, spectral: LoweredSpectral) -> None:
        super().__init__()
        self.first, self.last = _linear(spectral.first), _linear(spectral.last)
        channels = spectral.first.out_channels
        blocks = torch.arange(2 * channels).view(channels, 2).t().reshape(-1)  # all real parts, then all imaginary
        self.unit = _linear(spectral.unit.conv, blocks)

    def forward(self, x: Tensor, products: FourierProducts) -> Tensor:
        """Map N×H×W×C to the same shape."""
        y = torch.relu(self.first(x))
        unit = products.back(torch.relu(self.unit(products.forward(y))))
        return cast("Tensor", self.last(y + unit))


class SplitLayer(nn.Module):
    """A Fourier layer; one convolution of the local features contributes to both the local and the global ones."""

    def __init__(self, layer: LoweredLayer) -> None:
        super().__init__()
        local = self.local = layer.local
        self.of_local = bare_conv(
            torch.cat([layer.to_local.weight[:, :local], layer.to_global.weight]),
            torch.cat([cast("Tensor", layer.to_local.bias), cast("Tensor", layer.to_global.bias)]),
        )
        self.of_global = bare_conv(layer.to_local.weight[:, local:], None)
        self.spectral = SplitSpectral(layer.spectral)

    def forward(self, pair: Pair, products: FourierProducts) -> Pair:
        """Map features to features of the same shapes."""
        local, overall = pair
        first, second = self.of_local(_with_border(local)), self.of_global(_with_border(overall))
        seen = self.spectral(overall.permute(0, 2, 3, 1), products).permute(0, 3, 1, 2)
        return torch.relu(first[:, : self.local] + second), torch.relu(first[:, self.local :] + seen)


class SplitBlock(nn.Module):
    """Two Fourier layers and a residual."""

    def __init__(self, block: LoweredBlock) -> None:
        super().__init__()
        self.first, self.second = SplitLayer(block.first), SplitLayer(block.second)

    def forward(self, pair: Pair, products: FourierProducts) -> Pair:
        """Map features to features of the same shapes."""
        local, overall = self.second(self.first(pair, products), products)
        return pair[0] + local, pair[1] + overall


class SplitLaMa(LoweredLaMa):
    """The whole net behind the tensor contract, for options that `fits` accepts."""

    def __init__(self, net: LaMaNet) -> None:
        super().__init__(net)
        blocks = [cast("LoweredBlock", block) for block in self.blocks]
        self.local = blocks[0].first.local
        self.blocks = nn.ModuleList(SplitBlock(block) for block in blocks)

    def through_blocks(self, x: Tensor) -> Tensor:
        """Map the joined features N×C×H×W to the same shape."""
        products, pair = FourierProducts(x), (x[:, : self.local], x[:, self.local :])
        for block in self.blocks:
            pair = block(pair, products)
        return torch.cat(pair, 1)


def _with_border(x: Tensor) -> Tensor:
    return F.pad(x, (1, 1, 1, 1), mode="reflect")


def _linear(conv: nn.Conv2d, order: Tensor | None = None) -> nn.Linear:
    """Convert a 1×1 convolution to a product over the last axis; `order` permutes its input and output channels."""
    linear = nn.Linear(conv.in_channels, conv.out_channels, bias=conv.bias is not None)
    for name, parameter in conv.named_parameters():
        value = parameter.detach().flatten(1) if name == "weight" else parameter.detach()
        if order is not None:
            value = value[order][:, order] if name == "weight" else value[order]
        setattr(linear, name, nn.Parameter(value.clone(), requires_grad=False))
    return linear
