"""Finds the seam of a mask with OpenCV and numpy, if the extension was not compiled. Pure. Rules: ADR 2."""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from service.core.pictures import Bool2D

_MIN_CORE_PIXELS = 128 * 128
"""Least pixels of a mask at which removing the core of its holes saves time, if they fill half of it."""


class Seam(NamedTuple):
    """The pixels of a hole that are blended, S of them; indices are flat, by rows.

    indices: int32, the pixels of the seam.
    nearest: int32, for each the nearest pixel outside the mask.
    weights: float32, the weight of the fill at each pixel, 0 to 1.
    """

    indices: NDArray[np.int32]
    nearest: NDArray[np.int32]
    weights: NDArray[np.float32]


def find_seam(mask: Bool2D, width: int) -> Seam:
    """Find the seam of a mask.

    Args:
        mask: H×W, True = hole.
        width: width of the seam in pixels.
    """
    inside = np.ascontiguousarray(mask)
    rim = _without_core(inside, width)
    outside = np.flatnonzero(~rim).astype(np.int32)
    if not outside.size:
        return Seam(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
    # labels of the pixels in `outside` are 1, 2, … in this order
    distance: Any
    labels: Any
    distance, labels = cv2.distanceTransformWithLabels(
        rim.view(np.uint8), cv2.DIST_L2, 3, labelType=cv2.DIST_LABEL_PIXEL
    )
    # np.flatnonzero is four times faster on booleans than on numbers
    indices = np.flatnonzero((distance <= width) & rim).astype(np.int32)
    nearest = outside.take(labels.take(indices) - 1)
    if rim is not inside:  # pixels that are nearer to the removed core are not in the seam
        kept = ~inside.take(nearest)
        indices, nearest = indices[kept], nearest[kept]
    return Seam(indices, nearest, distance.take(indices) / np.float32(width + 1))


def _without_core(inside: Bool2D, width: int) -> Bool2D:
    """The mask without the pixels deep inside, which no seam reaches; the mask itself if removing them saves no time.

    The core is more than twice the seam's width from the pixels outside, so no pixel of the seam is nearer to it.
    """
    pixels = inside.view(np.uint8)
    if inside.size < _MIN_CORE_PIXELS or 2 * cv2.countNonZero(pixels) < inside.size:
        return inside
    reach = 4 * width + 1
    core: Any = cv2.erode(pixels, np.ones((reach, reach), np.uint8))
    rim: Bool2D = inside ^ core.view(np.bool_)
    return rim
