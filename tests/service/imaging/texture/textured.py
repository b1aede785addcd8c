"""Pictures with texture, and fills of their holes as from a net that blurs."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

from service.core.pictures import Bool2D
from service.imaging.texture.stage import Rgb


class Filled(NamedTuple):
    """The original picture, its hole, and a fill: the original, blurred in the hole."""

    truth: Rgb
    hole: Bool2D
    fill: Rgb


def textured(height: int, width: int, *holes: tuple[slice, slice]) -> Filled:
    """Draw grey noise, brighter from left to right, with holes at the given slices."""
    noise = np.random.default_rng(0).normal(0, 20, (height, width))
    grey = (noise + np.linspace(100, 180, width)).clip(0, 255).astype(np.uint8)
    truth = np.repeat(grey[..., None], 3, 2)
    hole = np.zeros((height, width), np.bool_)
    for index in holes:
        hole[index] = True
    blurred = cv2.GaussianBlur(truth, (0, 0), 4)
    return Filled(truth, hole, np.where(hole[..., None], blurred, truth))
