"""FillNet for training: filters of fixed norm times a gain, which fold into plain filters in the public layout."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from export.generators.family import State
from export.generators.fillnet.attention import Attention
from export.generators.fillnet.net import FillUNet, Residual
from export.generators.fillnet.options import FillNetOptions

_HE = 1.387
"""√(2 / (1 + 0.2²)): preserves the magnitude of activations through LeakyReLU 0.2 (He et al. 2015)."""
_MIN_SQUARES = 1e-8
_QUIET_BRANCH, _QUIET_COLOUR = 0.35, 0.08
"""Initial gains, small: residual branches start weak, and the first pictures are close to the push-pull fill."""


class NormedConv(nn.Module):
    """Convolution with filters normalised to the norm gain × √2, so that activations keep their magnitude."""

    def __init__(
        self, channels: int, out_channels: int, kernel: int, *, padding: int = 0, stride: int = 1, dilation: int = 1
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_channels, channels, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.gain = nn.Parameter(torch.ones(out_channels))
        self.stride, self.padding, self.dilation = stride, padding, dilation

    def folded(self) -> Tensor:
        """Return the filters of the equivalent ordinary convolution."""
        length = (self.weight.square().sum((1, 2, 3)) + _MIN_SQUARES).sqrt()
        return self.weight * (self.gain * _HE / length)[:, None, None, None]

    def forward(self, x: Tensor) -> Tensor:
        """Apply the convolution; shapes as for nn.Conv2d."""
        return F.conv2d(x, self.folded(), self.bias, self.stride, self.padding, self.dilation)


def make_net(options: FillNetOptions, generator: torch.Generator) -> FillUNet:
    """Create a net with random filters."""
    net = FillUNet(options, NormedConv)
    for module in net.modules():
        if isinstance(module, NormedConv):
            nn.init.normal_(module.weight, generator=generator)
        if isinstance(module, Residual):
            nn.init.constant_(cast("NormedConv", module.second).gain, _QUIET_BRANCH)
        if isinstance(module, Attention):
            nn.init.constant_(cast("NormedConv", module.out).gain, _QUIET_BRANCH)
    nn.init.constant_(cast("NormedConv", net.overall).gain, _QUIET_BRANCH)
    for layer in (net.pixels, *net.colour):
        nn.init.constant_(cast("NormedConv", layer).gain, _QUIET_COLOUR)
    return net


def checkpoint_state(net: nn.Module) -> State:
    """Return the net's tensors in the layout that `export` reads."""
    state = {}
    for name, module in net.named_modules():
        if isinstance(module, NormedConv):
            state[f"{name}.weight"], state[f"{name}.bias"] = module.folded().detach(), module.bias.detach()
        if isinstance(module, Attention):
            state[f"{name}.temperature"] = module.temperature.detach()
    return state


def training_state(state: State) -> State:
    """Convert the tensors of a published checkpoint to this net's: normalised filters, and their norms as gains."""
    own = dict(state)
    for key, tensor in state.items():
        if key.endswith(".weight"):
            weight = tensor.float()
            length = weight.square().sum((1, 2, 3)).sqrt()
            unit = weight / length.clamp(min=_MIN_SQUARES)[:, None, None, None]
            own[key] = (
                unit * weight[0].numel() ** 0.5
            )  # entries of magnitude 1, as at initialisation, which suits the learning rate
            own[key.removesuffix("weight") + "gain"] = length / _HE
        else:
            own[key] = tensor.float()
    return own
