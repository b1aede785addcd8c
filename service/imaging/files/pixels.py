"""Depth and channels of pixels, converted the same way wherever that is needed."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from service.core.pictures import Pixels


def to_8_bits(samples: Pixels) -> NDArray[np.uint8]:
    """Samples on the scale of 0–255: v/257 rounded for 16 bits, themselves for 8."""
    if samples.dtype == np.uint8:
        return samples.astype(np.uint8, copy=False)
    scaled: Any = cv2.convertScaleAbs(samples, alpha=1 / 257)
    return np.asarray(scaled, np.uint8).reshape(samples.shape)


def to_channels(pixels: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """H×W×1 or H×W×3 as H×W×`channels`: grey repeated, or the luminance of RGB (ITU-R BT.601)."""
    if pixels.shape[2] == channels:
        return pixels
    converted: Any = cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB if channels == 3 else cv2.COLOR_RGB2GRAY)
    return np.asarray(converted, np.uint8).reshape(*pixels.shape[:2], channels)
