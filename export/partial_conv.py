"""The layer that the partial-convolution families share, in its public form and with mask sums for a graph.

Liu et al., "Image Inpainting for Irregular Holes Using Partial Convolutions", ECCV 2018. Masks here: 1 = VALID.
"""

from __future__ import annotations

import copy
from functools import reduce
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn


def through_levels(net: nn.Module, levels: int, image: Tensor, mask: Tensor) -> Tensor:
    """Run a public U-Net: down `enc_1` … `enc_n`, and up `dec_n` … `dec_1` by nearest ×2 and the skip.

    Every block takes and returns features and a mask of the same shape.
    """
    features = [(image, mask)]
    for level in range(1, levels + 1):
        features.append(net.get_submodule(f"enc_{level}")(*features[-1]))
    x, m = features.pop()
    for level in range(levels, 0, -1):
        skip, skip_mask = features.pop()
        x, m = (F.interpolate(t, scale_factor=2.0, mode="nearest") for t in (x, m))
        x, m = net.get_submodule(f"dec_{level}")(torch.cat([x, skip], 1), torch.cat([m, skip_mask], 1))
    return x


class PartialConv2d(nn.Module):
    """The public layer: conv(x·m)/s + b, and 0 where s is 0, where s is the mask's own convolution.

    The mask convolution is ones in most files, but it is stored in the file and can have other values.
    """

    def __init__(self, channels: tuple[int, int], kernel: int, geometry: tuple[int, int], *, bias: bool) -> None:
        super().__init__()
        self.input_conv = nn.Conv2d(*channels, kernel, *geometry, bias=bias)
        self.mask_conv = nn.Conv2d(*channels, kernel, *geometry, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map features and a mask of the same shape to the layer's features and mask."""
        conv, total = self.input_conv, self.mask_conv(mask)
        hole = total == 0
        y = F.conv2d(x * mask, conv.weight, None, conv.stride, conv.padding) / total.masked_fill(hole, 1)
        if conv.bias is not None:
            y = y + conv.bias.view(1, -1, 1, 1)
        return y.masked_fill(hole, 0), (~hole).to(mask.dtype)


def counts_all_alike(convs: list[PartialConv2d]) -> bool:
    """Return whether every mask convolution is ones: then all mask channels are equal, and one suffices."""
    return all(bool((conv.mask_conv.weight == 1).all()) for conv in convs)


class WindowRatio(nn.Module):
    """The ratio window/s (0 where s is 0) and the layer's mask, in FP32 whatever the net computes in.

    The ratio lies in [1, window] for 0/1 masks. The naive window/(s + 1e-6) overflows FP16 on a hole (49e6 > 65504),
    1e-8 vanishes in it, and either gives inf·0 = NaN.
    """

    counts: Tensor

    def __init__(self, conv: nn.Conv2d, counts: Tensor) -> None:
        super().__init__()
        self.window, self.stride = float(conv.weight[0].numel()), conv.stride
        self.padding = cast("tuple[int, ...]", conv.padding)
        self.sums = _window_sums(counts.detach())
        self.register_buffer("counts", counts.detach().clone())

    def forward(self, masks: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Map FP32 masks (concatenated by channels) to ratio and mask."""
        total = self._total(masks)
        valid = (total != 0).float()
        return self.window / (total + (1 - valid)) * valid, valid

    def _total(self, masks: list[Tensor]) -> Tensor:
        if self.sums is None or len(self.sums) != len(masks):  # one mask may have several channels
            return F.conv2d(
                torch.cat(masks, 1) if len(masks) > 1 else masks[0], self.counts, None, self.stride, self.padding
            )
        kernel = (self.counts.shape[2], self.counts.shape[3])
        parts = [
            F.avg_pool2d(mask, kernel, self.stride, self.padding) * factor
            for mask, factor in zip(masks, self.sums, strict=True)
        ]
        return reduce(torch.add, parts)


def _window_sums(counts: Tensor) -> tuple[float, ...] | None:
    """Return the factor from window mean to sum for each mask channel; None if the kernel is not constant.

    Runtimes compute means fast, but an FP32 convolution of one channel uses no tensor cores.
    """
    if counts.shape[0] != 1 or not bool((counts == counts[:, :, :1, :1]).all()):
        return None
    return tuple(float(kernel.sum()) for kernel in counts[0])


def group_counts(conv: nn.Conv2d, groups: tuple[int, ...]) -> Tensor:
    """Return the kernel that counts valid pixels of 1-channel masks, weighted by the feature channels of each."""
    kernel = torch.ones(1, 1, *conv.weight.shape[2:])
    return kernel * torch.tensor(groups, dtype=kernel.dtype).view(1, -1, 1, 1)


def with_weight(conv: nn.Conv2d, weight: Tensor) -> nn.Conv2d:
    """Copy the convolution with other weights and without bias."""
    changed = copy.deepcopy(conv)
    changed.weight, changed.bias = nn.Parameter(weight.detach().clone(), requires_grad=False), None
    return changed


def masked(features: list[Tensor], masks: list[Tensor]) -> Tensor:
    """Compute x·m for each pair, concatenated by channels, in the features' type."""
    parts = [x * m.to(x.dtype) for x, m in zip(features, masks, strict=True)]
    return torch.cat(parts, 1) if len(parts) > 1 else parts[0]
