"""Gated convolutions as a graph has them: features and gate by a convolution of their own each.

The public code computes both by one convolution and divides its channels. OpenVINO fuses ELU and sigmoid into
convolutions that nothing divides, and copies channels that are divided: 1.1 times as fast on a CPU. The values are
equal. A program (`program.pt2`) keeps the one convolution.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from export.generators.deepfillv2.net import GatedConv


class DividedGatedConv(nn.Module):
    """A gated convolution in two."""

    def __init__(self, layer: GatedConv) -> None:
        super().__init__()
        self.doubles, self.late, self.colours = layer.doubles, layer.late, layer.colours
        self.activation = layer.activation
        self.features, self.gate = _half(layer.conv, 0), _half(layer.conv, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C'×H×W; colours are FP32."""
        if self.doubles:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        if self.late:
            x = F.pad(x, (0, 1, 0, 1))
        features, gate = self.features(x), self.gate(x)
        if self.colours:
            return torch.tanh(self.activation(features.float()) * torch.sigmoid(gate.float()))
        return self.activation(features) * torch.sigmoid(gate)  # type: ignore[no-any-return]  # a module's result


def divide_gates(net: nn.Module) -> nn.Module:
    """Divide every gated convolution of a net, which is changed."""
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, GatedConv) and child.gated:
                setattr(parent, name, DividedGatedConv(child))
    return net


def _half(conv: nn.Conv2d, part: int) -> nn.Conv2d:
    half = copy.deepcopy(conv)
    half.out_channels //= 2
    for name, parameter in conv.named_parameters():
        setattr(half, name, nn.Parameter(parameter.detach().chunk(2)[part].clone(), requires_grad=False))
    return half
