"""The forms of the net for a graph and for a program, which compute the same function.

Graph: a gated convolution becomes two, one for features and one for the gate. The public code computes both with one
convolution and splits its channels. OpenVINO fuses ELU and sigmoid only into convolutions whose channels are not split,
and copies channels that are: two convolutions are 1.1 times as fast on a CPU. A program (`program.pt2`) keeps the one
convolution.

Program: the attention's patches are views of its features, and are pasted as sums of slices, which torch.compile fuses
(ADR 56).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from export.generators.deepfillv2.attention import Paste, Patches
from export.generators.deepfillv2.net import GatedConv

_OVERLAPS = (((1, 1), (3, 0)), ((2, 1), (0, 2)))
"""For both pixel rows of a position, the pairs (patch row, patch) that cover it; patch 0: before, 1: here, 2: after."""


class DividedGatedConv(nn.Module):
    """A gated convolution as two convolutions."""

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
    """Divide every gated convolution of a net, in place."""
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


class ViewedPatches(nn.Module):
    """`Patches` as a view: a copy is made where a product needs one."""

    def __init__(self, layer: Patches) -> None:
        super().__init__()
        self.channels, self.side, self.stride = layer.channels, layer.kernel.shape[-1], layer.stride

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×(C·side²)×H'×W', with zeros outside."""
        windows = F.pad(x, (1, 1, 1, 1)).unfold(2, self.side, self.stride).unfold(3, self.side, self.stride)
        patches: Tensor = windows.permute(0, 1, 4, 5, 2, 3).flatten(1, 3)
        return patches


class SlicedPaste(nn.Module):
    """`Paste` as sums of four slices for each of the four pixels of a position."""

    def __init__(self, layer: Paste) -> None:
        super().__init__()
        self.channels = layer.channels

    def forward(self, patches: Tensor) -> Tensor:
        """Map N×(C·16)×H×W to N×C×2H×2W."""
        height, width = patches.shape[2:]
        padded = torch.unflatten(F.pad(patches, (1, 1, 1, 1)), 1, (self.channels, 4, 4))

        def pixel(rows: Sequence[tuple[int, int]], columns: Sequence[tuple[int, int]]) -> Tensor:
            slices = [
                padded[:, :, row, column, down : down + height, right : right + width]
                for row, down in rows
                for column, right in columns
            ]
            return sum(slices[1:], start=slices[0])

        pixels = [pixel(rows, columns) for rows in _OVERLAPS for columns in _OVERLAPS]
        return F.pixel_shuffle(torch.stack(pixels, 2).flatten(1, 2), 2)


def view_patches(net: nn.Module) -> nn.Module:
    """Replace `Patches` and `Paste` in a net, in place."""
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Patches):
                setattr(parent, name, ViewedPatches(child))
            elif isinstance(child, Paste):
                setattr(parent, name, SlicedPaste(child))
    return net
