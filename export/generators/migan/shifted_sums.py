"""Depthwise convolutions as sums of shifted inputs, for programs: torch.compile makes one kernel of each.

A depthwise convolution is limited by memory, not by arithmetic. A library's kernel reads and writes whole tensors; a
sum is fused with the padding before it and the activation after it (ADR 56).
"""

from __future__ import annotations

from typing import TypeGuard

import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn


class ShiftedSum(nn.Module):
    """A depthwise convolution with zero padding; weights and sums are FP32 whatever the type of the input."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.side, self.stride, self.padding = conv.kernel_size[0], conv.stride[0], int(conv.padding[0])
        taps = conv.weight.detach().float()[:, 0].permute(1, 2, 0)
        self.register_buffer("weight", taps.contiguous())  # side×side×C: channels lie together, as in the features
        self.register_buffer("bias", None if conv.bias is None else conv.bias.detach().float())

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C×H'×W' of the same type."""
        height = x.shape[2] + 2 * self.padding - self.side + 1  # at stride 1
        windows = F.pad(x, (self.padding,) * 4).unfold(3, self.side, self.stride)
        rows = [
            (windows[:, :, row : row + height : self.stride].float() * self.weight[row].t()[:, None, None]).sum(-1)
            for row in range(self.side)
        ]
        total = sum(rows[1:], start=rows[0])
        return (total if self.bias is None else total + self.bias[:, None, None]).to(x.dtype)


def shift_depthwise(net: nn.Module) -> nn.Module:
    """Replace the depthwise convolutions of a net, in place."""
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if _is_depthwise(child):
                setattr(parent, name, ShiftedSum(child))
    return net


def _is_depthwise(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Return whether the module is a convolution of each channel alone, with square geometry and no dilation."""
    if not isinstance(module, nn.Conv2d) or not module.in_channels == module.out_channels == module.groups:
        return False
    square = all(len({*pair}) == 1 for pair in (module.kernel_size, module.stride, module.padding))
    return square and module.padding_mode == "zeros" and set(module.dilation) == {1}
