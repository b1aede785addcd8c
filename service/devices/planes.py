"""Converts tiles to planes of floats and back with OpenCV and numpy, if the extension was not compiled. Pure."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Tile = NDArray[np.uint8]
_TO_UNIT = np.float32(1 / 255)
_FITS_32_BITS = 1e6
"""Values up to this, times 255, fit a 32-bit integer, to which OpenCV rounds before it saturates at 255."""


def to_planes(pixels: Tile, planes: NDArray[np.float32]) -> None:
    """Write the pixels, H×W×C, as C×H×W in [0, 1] into `planes`."""
    for plane, target in zip(cv2.split(pixels), planes, strict=True):
        np.multiply(plane, _TO_UNIT, out=target)


def to_tile(planes: NDArray[Any], into: Tile | None) -> Tile | None:
    """Clamp planes on the [0, 1] scale to uint8 pixels, rounded; None if a value is NaN or infinite.

    Args:
        planes: (S×)C×H×W.
        into: (S×)H×W×C, written to and returned; None for a new array.
    """
    least, most = planes.min(), planes.max()  # NaN if any value is
    if not (np.isfinite(least) and np.isfinite(most)):
        return None
    unit: Any = np.ascontiguousarray(planes, np.float32).reshape(-1, planes.shape[-1])
    if least < 0:
        unit = cv2.threshold(unit, 0.0, 0.0, cv2.THRESH_TOZERO)[1]
    if most > _FITS_32_BITS:
        unit = np.minimum(unit, 1.0)
    levels = np.asarray(cv2.convertScaleAbs(unit, alpha=255.0), np.uint8)  # saturates at 255
    return _channels_last(levels.reshape(planes.shape), into)


def _channels_last(levels: NDArray[np.uint8], into: Tile | None) -> Tile:
    """Move the channels last: (S×)C×H×W to (S×)H×W×C."""
    if levels.ndim == 3 and len(levels) > 1:
        tile = np.asarray(cv2.merge(list(levels), into), np.uint8)  # twice as fast as numpy
    else:
        tile = np.ascontiguousarray(np.moveaxis(levels, -3, -1))
    if into is None or tile is into:
        return tile
    np.copyto(into, tile)
    return into
