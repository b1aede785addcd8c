"""Conversions of pixel depth and channels."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from service.core.pictures import Pixels


def to_8_bits(samples: Pixels) -> NDArray[np.uint8]:
    """Convert samples to 8 bits: 16-bit values are divided by 257 and rounded, 8-bit values stay as they are."""
    if samples.dtype == np.uint8:
        return samples.astype(np.uint8, copy=False)
    scaled: Any = cv2.convertScaleAbs(samples, alpha=1 / 257)
    return np.asarray(scaled, np.uint8).reshape(samples.shape)


def to_channels(pixels: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """Convert between H×W×1 and H×W×3: grey is repeated, RGB becomes its luminance (ITU-R BT.601)."""
    if pixels.shape[2] == channels:
        return pixels
    converted: Any = cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB if channels == 3 else cv2.COLOR_RGB2GRAY)
    return np.asarray(converted, np.uint8).reshape(*pixels.shape[:2], channels)
