"""Chooses a batch's pictures and crops, as a function of the seed and of the number of samples drawn before."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.config import DataConfig
from training.seeds import Purpose, generator_for


@dataclass(frozen=True)
class CropPositions:
    """The pictures and crop positions of a batch, one entry per sample, on the device."""

    picture: Tensor
    """N, int64: indices of the pictures."""
    offset: Tensor
    """N×2, in [0, 1): first row and column of the crop, as a fraction of the range of possible positions."""
    mirrored: Tensor
    """N, bool: whether the crop is mirrored left to right."""
    span: Tensor | None
    """N: pixels of the picture for each pixel of the crop, along a side; None: 1, without interpolation."""

    def samples_between(self, first: int, last: int) -> CropPositions:
        """Return samples first … last - 1, one process's part of the batch."""
        span = None if self.span is None else self.span[first:last]
        return CropPositions(self.picture[first:last], self.offset[first:last], self.mirrored[first:last], span)


def picture_numbers(count: int, samples_before: int, batch: int, seed: int, device: torch.device) -> Tensor:
    """Return the indices, int64, of the next `batch` out of `count` pictures.

    Each pass over the pictures visits every picture once, in a new random order.
    """
    first, last = samples_before // count, (samples_before + batch - 1) // count
    rounds = [
        torch.randperm(count, generator=generator_for(device, seed, epoch, Purpose.ORDER), device=device)
        for epoch in range(first, last + 1)
    ]
    begin = samples_before - first * count
    return torch.cat(rounds)[begin : begin + batch]


def draw_crops(data: DataConfig, picture: Tensor, generator: torch.Generator) -> CropPositions:
    """Draw a random crop for each index in `picture` (N, int64), scaled and mirrored as configured."""
    count, device = len(picture), picture.device
    offset = torch.rand(count, 2, generator=generator, device=device)
    coin, stretch = torch.rand(2, count, generator=generator, device=device)
    low, high = data.scale
    span = None if low == high == 1 else low + (high - low) * stretch
    return CropPositions(picture, offset, (coin < 0.5) & data.flip, span)


def centre_crops(first: int, last: int, device: torch.device) -> CropPositions:
    """Return the centre crops of pictures first … last - 1."""
    picture = torch.arange(first, last, device=device)
    offset = torch.full((last - first, 2), 0.5, device=device)
    return CropPositions(picture, offset, torch.zeros(last - first, dtype=torch.bool, device=device), None)
