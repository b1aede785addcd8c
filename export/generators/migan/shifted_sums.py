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
        # side×1×C×1×1×side: each row is broadcast with its windows; channels lie together, as in the features
        taps = conv.weight.detach().float()[:, 0].permute(1, 2, 0).contiguous()
        self.register_buffer("weight", taps.permute(0, 2, 1)[:, None, :, None, None])
        self.register_buffer("bias", None if conv.bias is None else conv.bias.detach().float()[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C×H'×W' of the same type.

        All rows are cut at once, as torch.export takes milliseconds for each operator and as many again to load it.
        """
        windows = F.pad(x, (self.padding,) * 4).unfold(3, self.side, self.stride).unfold(2, self.side, self.stride)
        rows = [  # an FP16 value times an FP32 weight is FP32
            (row * weight).sum(-1) for row, weight in zip(windows.unbind(-1), self.weight.unbind(), strict=True)
        ]
        total = sum(rows[1:], start=rows[0])
        total = total if self.bias is None else total + self.bias
        return total if total.dtype == x.dtype else total.to(x.dtype)


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
