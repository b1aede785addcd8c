"""Holes from a folder of mask pictures (bright = hole), augmented on the device."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from numpy.typing import NDArray
from torch import Tensor

from training.data.loading import load_all
from training.data.pictures import picture_files
from training.errors import DataMissing


class MaskFiles:
    """All masks of a folder as squares of one size on a device, 1 = hole."""

    def __init__(self, folder: Path, side: int, device: torch.device) -> None:
        squares = load_all(partial(_read_square, side=side), picture_files(folder))
        if not squares:
            raise DataMissing(f"{folder}: contains no pictures of masks; is masks.folder right?")
        self._masks = torch.from_numpy(np.stack(squares)).to(device)

    def draw(
        self, count: int, share: tuple[int, int], coverage: tuple[float, float], generator: torch.Generator
    ) -> Tensor:
        """Draw N×1×S×S FP32 masks at random, mirrored, rotated, shifted cyclically and dilated.

        Args:
            count: samples of the global batch; random numbers are drawn for all of them, equally in every process.
            share: first sample of this process, and the one after its last; N is their difference.
            coverage: smallest and largest covered fraction. A mask that covers more is inverted if its inverse covers
                enough, else kept.
            generator: draws the masks.
        """
        device, side = self._masks.device, self._masks.shape[-1]
        drawn = torch.randint(0, 1 << 30, (3, count), generator=generator, device=device)
        shifts = torch.randint(0, side, (2, count), generator=generator, device=device)
        number, thick, turn = drawn[:, slice(*share)]
        masks = self._masks[number % len(self._masks)].float()
        masks = torch.where((turn % 2 == 1)[:, None, None], masks.transpose(1, 2), masks)
        masks = torch.where((turn // 2 % 2 == 1)[:, None, None], masks.flip(1), masks)
        masks = torch.where((turn // 4 % 2 == 1)[:, None, None], masks.flip(2), masks)
        thicker = F.max_pool2d(masks[:, None], 9, 1, 4)[:, 0]
        masks = torch.where((thick % 2 == 1)[:, None, None], thicker, masks)
        masks = _shift_cyclically(masks, shifts[:, slice(*share)])
        inverse_fits = (masks.mean((1, 2)) > coverage[1]) & (1 - masks.mean((1, 2)) >= coverage[0])
        return torch.where(inverse_fits[:, None, None], 1 - masks, masks)[:, None]


def _read_square(path: Path, side: int) -> NDArray[np.bool_]:
    """Read a mask as a square, true = hole."""
    square: NDArray[np.bool_] = cv2.resize(_decode_mask(path), (side, side), interpolation=cv2.INTER_AREA) >= 128
    return square


def _decode_mask(path: Path) -> NDArray[np.uint8]:
    """Decode a mask as H×W grey."""
    try:
        encoded = np.fromfile(path, np.uint8)
    except OSError as error:
        raise DataMissing(f"{path}: cannot be read ({error.strerror}); copy it again, or remove it") from error
    mask = cv2.imdecode(encoded, cv2.IMREAD_GRAYSCALE) if encoded.size else None
    if mask is None:
        raise DataMissing(f"{path}: not a picture that can be decoded; remove it")
    return np.asarray(mask, np.uint8)


def _shift_cyclically(masks: Tensor, by: Tensor) -> Tensor:
    """Shift each mask of N×S×S cyclically by its own pixels down and across, 2×N."""
    side = masks.shape[-1]
    steps = torch.arange(side, device=masks.device)
    rows, columns = (steps + by[0, :, None]) % side, (steps + by[1, :, None]) % side
    return masks[torch.arange(len(masks), device=masks.device)[:, None, None], rows[:, :, None], columns[:, None, :]]
