"""Contextual attention as matrix products, with the mask of each picture.

Yu et al., "Generative Image Inpainting with Contextual Attention", CVPR 2018. Every 3×3 patch of the halved features is
compared with every known one, the scores are smoothed along diagonals, and 4×4 patches of the full features are pasted
with the softmax of the scores as weights. Everything here is FP32: a score is multiplied by 10 and sums hundreds of
products.

Memory: L = H/2 · W/2 patches make L² scores of 4 bytes: 67 MB for a picture of 512², whose features are 128².
"""

from __future__ import annotations

from typing import Literal, cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

Sampling = Literal["plain", "aligned"]
"""The choice of pixels: every second one, or evenly from the first to the last, as TensorFlow's align_corners."""
_SHARPNESS = 10.0
_MIN_NORM = 1e-4


def halve(x: Tensor, sampling: Sampling, times: int = 2) -> Tensor:
    """Choose one of `times` rows and columns of N×C×H×W."""
    if sampling == "plain":
        return x[:, :, ::times, ::times]
    return _aligned(_aligned(x, 2, times), 3, times)


def _aligned(x: Tensor, axis: int, times: int) -> Tensor:
    """Choose the rows nearest to evenly spaced ones; in integers, so that every engine rounds alike."""
    have = x.shape[axis]
    steps = torch.arange(have // times, device=x.device)
    gaps = steps[-1:].clamp(min=1)  # from a tensor, because torch.export would freeze a number made of sizes
    return x.index_select(axis, torch.div(2 * steps * (have - 1) + gaps, 2 * gaps, rounding_mode="floor"))


class Patches(nn.Module):
    """Extracts the patch around each position as channels, by a convolution with one constant kernel per pixel."""

    kernel: Tensor

    def __init__(self, channels: int, side: int, stride: int) -> None:
        super().__init__()
        self.channels, self.stride = channels, stride
        pixels = torch.eye(side * side, device="cpu").view(side * side, 1, side, side)
        self.register_buffer("kernel", pixels.repeat(channels, 1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×(C·side²)×H'×W', with zeros outside."""
        return F.conv2d(x, self.kernel, stride=self.stride, padding=1, groups=self.channels)


class Paste(nn.Module):
    """Sums overlapping 4×4 patches, two pixels apart, by one convolution to the 2×2 pixels of each position.

    Equals the transposed convolution of the public code, which TensorRT cannot build with free sizes.
    """

    kernel: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        # axes: output row, row of the patch, neighbour (before, the position itself, after)
        taps = torch.zeros(2, 4, 3, device="cpu")
        for row, patch_row, patch_column in ((0, 1, 1), (0, 3, 0), (1, 2, 1), (1, 0, 2)):
            taps[row, patch_row, patch_column] = 1
        kernel = torch.einsum("aip,bjq->abijpq", taps, taps).reshape(4, 16, 3, 3)
        self.register_buffer("kernel", kernel.repeat(channels, 1, 1, 1), persistent=False)

    def forward(self, patches: Tensor) -> Tensor:
        """Map N×(C·16)×H×W to N×C×2H×2W."""
        return F.pixel_shuffle(F.conv2d(patches, self.kernel, padding=1, groups=self.channels), 2)


class ContextualAttention(nn.Module):
    """Replaces features in a hole by those of similar known positions. Its only weight is a public constant."""

    def __init__(self, channels: int, *, fuse: bool, sampling: Sampling, soft_norm: bool = False) -> None:
        """Make the layer. With `soft_norm`, a norm adds 1e-4 to each square, and files have no `fuse_weight`."""
        super().__init__()
        self.fuse, self.sampling = fuse, sampling
        self.added = 9 * channels * _MIN_NORM if soft_norm else 0.0
        if fuse and not soft_norm:
            self.fuse_weight = nn.Parameter(torch.eye(3)[None, None], requires_grad=False)
        self.compared, self.taken, self.paste = Patches(channels, 3, 1), Patches(channels, 4, 2), Paste(channels)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """Map N×C×H×W and the mask N×1×(H/2)×(W/2), 1 = fill, to N×C×H×W in FP32."""
        wide = features.float()
        patches = self.compared(halve(wide, self.sampling))
        number, _, height, width = patches.shape
        channels = self.compared.channels
        count = height * width  # the reshapes show engines that mask, scores and result have the features' sizes
        seen = patches.reshape(number, 9 * channels, count)
        norm = torch.sqrt((seen * seen).sum(1, keepdim=True) + self.added).clamp(min=_MIN_NORM)
        scores = seen.transpose(1, 2) @ (seen / norm)  # positions to fill × positions to take from
        if self.fuse:
            scores = fused_scores(scores, height, width)
        known = (F.max_pool2d(mask, 3, stride=1, padding=1) <= 0).float().reshape(number, 1, count)
        weights = torch.softmax(scores * (known * _SHARPNESS), -1) * known
        taken = weights @ self.taken(wide).reshape(number, 16 * channels, count).transpose(1, 2)
        taken = taken.transpose(1, 2).reshape(number, 16 * channels, height, width)
        return cast("Tensor", self.paste(taken) / 4).reshape(features.shape)


def fused_scores(scores: Tensor, height: int, width: int) -> Tensor:
    """Add to each score those of the pairs one position before and after, first along rows, then along columns; N×L×L.

    Positions are numbered row by row. Along a column the next position is `width` further on, and the last row is
    followed by the first one, shifted by one position. The scores are padded with these rows and need no reordering.
    """
    padded = F.pad(scores, (1, 1, 1, 1))
    summed = padded[:, :-2, :-2] + scores + padded[:, 2:, 2:]
    last_row = (height - 1) * width
    before, after = summed[:, last_row:-1], summed[:, 1:width]
    tall = torch.cat([F.pad(before, (0, 0, 1, 0)), summed, F.pad(after, (0, 0, 0, 1))], 1)
    before, after = tall[:, :, last_row:-1], tall[:, :, 1:width]
    wide = torch.cat([F.pad(before, (1, 0)), tall, F.pad(after, (0, 1))], 2)
    return wide[:, : -2 * width, : -2 * width] + summed + wide[:, 2 * width :, 2 * width :]
