"""Decoded pictures on the device, which also cuts the crops, so that a step needs no CPU work.

The pixels of all pictures, of any size, are concatenated in one uint8 tensor; a crop gathers pixels by index.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.data.cuts import Cuts
from training.data.pictures import Picture
from training.errors import DataMissing


class PictureCache:
    """Pictures (H×W×C uint8, with equal C) on a device."""

    def __init__(self, pictures: Sequence[Picture], device: torch.device) -> None:
        sizes = torch.tensor([picture.shape[:2] for picture in pictures])
        counts = sizes.prod(1)
        starts = counts.cumsum(0) - counts
        self.count, self.device = len(pictures), device
        try:
            self._pixels = torch.empty(int(counts.sum()), pictures[0].shape[2], dtype=torch.uint8, device=device)
        except torch.OutOfMemoryError as error:
            wanted = int(counts.sum()) * pictures[0].shape[2] / 1e9
            raise DataMissing(
                f"{wanted:.1f} GB of pictures do not fit {device}; lower data.limit or data.load_side"
            ) from error
        for picture, start, count in zip(pictures, starts.tolist(), counts.tolist(), strict=True):
            self._pixels[start : start + count].copy_(torch.tensor(picture).view(count, -1), non_blocking=True)
        self._starts, self._sizes = starts.to(device), sizes.to(device)

    @property
    def nbytes(self) -> int:
        """The bytes used on the device."""
        return self._pixels.nbytes

    def crops(self, cuts: Cuts, side: int) -> Tensor:
        """Return N×C×side×side in [0, 1], FP32, channels-last; bilinear where the crops are scaled."""
        sizes, starts = self._sizes[cuts.picture], self._starts[cuts.picture]
        steps = torch.arange(side, device=self.device)
        across = torch.where(cuts.mirrored[:, None], side - 1 - steps, steps)
        if cuts.span is None:
            first = (cuts.place * (sizes - side + 1)).long()
            values = self._pixels_at(starts, sizes, first[:, :1] + steps, first[:, 1:] + across).float()
        else:
            span = cuts.span.minimum((sizes.amin(1) - 1) / (side - 1))[:, None]
            begin = cuts.place * (sizes - 1 - span * (side - 1))
            values = self._between(starts, sizes, begin[:, :1] + span * steps, begin[:, 1:] + span * across)
        return (values / 255).permute(0, 3, 1, 2)

    def _between(self, starts: Tensor, sizes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        top, left = rows.long(), columns.long()
        down, right = (rows - top)[:, :, None, None], (columns - left)[:, None, :, None]
        corners = [self._pixels_at(starts, sizes, top + y, left + x).float() for y in (0, 1) for x in (0, 1)]
        return torch.lerp(torch.lerp(corners[0], corners[1], right), torch.lerp(corners[2], corners[3], right), down)

    def _pixels_at(self, starts: Tensor, sizes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Gather N×side rows and columns, clamped to the pictures, into N×side×side×C uint8."""
        rows, columns = rows.minimum(sizes[:, :1] - 1), columns.minimum(sizes[:, 1:] - 1)
        return self._pixels[starts[:, None, None] + rows[:, :, None] * sizes[:, 1, None, None] + columns[:, None, :]]
