"""Decoded pictures on the device, which also cuts the crops, so that a step needs no CPU work.

Pictures of any size lie one after another in one uint8 tensor of pixels; a crop is a gather of pixel indices. Up to the
reserved memory, pictures can be added while another thread cuts crops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from training.data.cuts import CropPositions
from training.data.pictures import Picture
from training.errors import DataMissing


class _Index(NamedTuple):
    """The positions of N pictures in the tensor of pixels, on the device."""

    starts: Tensor
    """N: the index of each picture's first pixel."""
    sizes: Tensor
    """N×2: height and width."""
    end: int
    """Total number of pixels."""


class PictureCache:
    """Pictures (H×W×C uint8, with equal C) on a device.

    Args:
        pictures: at least one.
        device: the device that holds them.
        room_bytes: memory for all pictures, including those added later; by default just enough for `pictures`.

    Raises:
        DataMissing: the pictures exceed the device's memory or `room_bytes`.
    """

    def __init__(self, pictures: Sequence[Picture], device: torch.device, room_bytes: float | None = None) -> None:
        channels = pictures[0].shape[2]
        wanted = sum(picture.size for picture in pictures) if room_bytes is None else room_bytes
        self.device = device
        try:
            self._pixels = torch.empty(int(wanted) // channels, channels, dtype=torch.uint8, device=device)
        except torch.OutOfMemoryError as error:
            raise DataMissing(
                f"{wanted / 1e9:.1f} GB of pictures do not fit {device}; lower data.limit or data.load_side"
            ) from error
        none = torch.zeros(0, dtype=torch.int64, device=device)
        self._index = _Index(none, none.view(0, 2), 0)
        self.append(pictures)

    def append(self, pictures: Sequence[Picture]) -> None:
        """Add pictures; may run in another thread than `crops`, which sees all of them or none.

        Raises:
            DataMissing: the pictures do not fit the reserved memory.
        """
        index = self._index
        sizes = torch.tensor([picture.shape[:2] for picture in pictures])
        counts = sizes.prod(1)
        starts = index.end + counts.cumsum(0) - counts
        end = index.end + int(counts.sum())
        if end > len(self._pixels):
            raise DataMissing(
                f"{end * self._pixels.shape[1] / 1e9:.2f} GB of pictures do not fit the room of "
                f"{self._pixels.nbytes / 1e9:.2f} GB; raise capacity_gb, or lower data.load_side"
            )
        for picture, start, count in zip(pictures, starts.tolist(), counts.tolist(), strict=True):
            self._pixels[start : start + count].copy_(torch.tensor(picture).view(count, -1), non_blocking=True)
        known = (torch.cat([index.starts, starts.to(self.device)]), torch.cat([index.sizes, sizes.to(self.device)]))
        if self.device.type == "cuda":
            written = torch.cuda.current_stream(self.device).record_event()  # other threads may use other streams
            written.synchronize()  # waiting for the whole device would break a CUDA graph that is being recorded
        self._index = _Index(*known, end)

    @property
    def count(self) -> int:
        """The number of pictures."""
        return len(self._index.starts)

    @property
    def nbytes(self) -> int:
        """The bytes of pictures on the device."""
        return self._index.end * self._pixels.shape[1]

    def crops(self, cuts: CropPositions, side: int) -> Tensor:
        """Return the crops, N×C×side×side FP32 in [0, 1], channels-last; scaled crops are interpolated bilinearly."""
        index = self._index
        sizes, starts = index.sizes[cuts.picture], index.starts[cuts.picture]
        steps = torch.arange(side, device=self.device)
        across = torch.where(cuts.mirrored[:, None], side - 1 - steps, steps)
        if cuts.span is None:
            first = (cuts.offset * (sizes - side + 1)).long()
            values = self._pixels_at(starts, sizes, first[:, :1] + steps, first[:, 1:] + across).float()
        else:
            span = cuts.span.minimum((sizes.amin(1) - 1) / (side - 1))[:, None]
            begin = cuts.offset * (sizes - 1 - span * (side - 1))
            values = self._interpolate(starts, sizes, begin[:, :1] + span * steps, begin[:, 1:] + span * across)
        return (values / 255).permute(0, 3, 1, 2)

    def _interpolate(self, starts: Tensor, sizes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        top, left = rows.long(), columns.long()
        down, right = (rows - top)[:, :, None, None], (columns - left)[:, None, :, None]
        corners = [self._pixels_at(starts, sizes, top + y, left + x).float() for y in (0, 1) for x in (0, 1)]
        return torch.lerp(torch.lerp(corners[0], corners[1], right), torch.lerp(corners[2], corners[3], right), down)

    def _pixels_at(self, starts: Tensor, sizes: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Gather N×side rows and columns, clamped to the pictures, into N×side×side×C uint8."""
        rows, columns = rows.minimum(sizes[:, :1] - 1), columns.minimum(sizes[:, 1:] - 1)
        return self._pixels[starts[:, None, None] + rows[:, :, None] * sizes[:, 1, None, None] + columns[:, None, :]]
