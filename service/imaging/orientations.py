"""Different fills from a model that draws no random numbers: it sees the picture mirrored and turned. Pure.

A convolutional net trained on photographs fills a mirrored or turned picture in another way (docs/adr/0060).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from engines.manifest import FixedSize, Manifest
from service.core.batch_rows import Sample
from service.core.pictures import Size

_ROTATIONS = (None, cv2.ROTATE_90_COUNTERCLOCKWISE, cv2.ROTATE_180, cv2.ROTATE_90_CLOCKWISE)
"""OpenCV's rotation for each number of quarter turns; numpy's takes 20 times as long for RGB."""
_LEFT_TO_RIGHT = 1


class Orientation(NamedTuple):
    """One of the eight ways to lay a picture on a square grid."""

    quarter_turns: int
    """Number of quarter turns, counterclockwise."""
    mirrored: bool
    """Whether the turned picture is mirrored, left to right."""


UPRIGHT = Orientation(0, mirrored=False)
ORIENTATIONS = (
    UPRIGHT,
    Orientation(0, mirrored=True),
    Orientation(2, mirrored=True),
    Orientation(2, mirrored=False),
    Orientation(1, mirrored=False),
    Orientation(3, mirrored=False),
    Orientation(1, mirrored=True),
    Orientation(3, mirrored=True),
)
"""The orientation of each result of a request, by its index: the first one is the fill of a request for one."""


def can_turn(manifest: Manifest) -> bool:
    """Return whether a model fills turned pictures: it inpaints any part of a tile, and tiles of both orientations."""
    size = manifest.size
    one_way = isinstance(size, FixedSize) and (size.height != size.width or size.hole is not None)
    return manifest.task == "inpaint" and not one_way


def turn_row(row: Sample, orientation: Orientation) -> Sample:
    """Return a row of H×W arrays, with or without channels, in an orientation; the first is returned as it is."""
    if orientation == UPRIGHT:
        return row
    arrays = {name: _turned(array, orientation) for name, array in row.arrays.items()}
    height, width = row.tile[::-1] if orientation.quarter_turns % 2 else row.tile
    return replace(row, tile=Size(height, width), arrays=arrays, into=None, locked=False)


def turn_back(tile: NDArray[np.uint8], orientation: Orientation) -> NDArray[np.uint8]:
    """Return the H×W×C tile computed from a turned row as it lies in the picture; the first is returned as it is."""
    if orientation == UPRIGHT:
        return tile
    unmirrored = cv2.flip(tile, _LEFT_TO_RIGHT) if orientation.mirrored else tile
    return _with_channels(_rotated(unmirrored, -orientation.quarter_turns % 4), tile)


def _turned(array: NDArray[Any], orientation: Orientation) -> NDArray[Any]:
    turned = _rotated(array, orientation.quarter_turns)
    return _with_channels(cv2.flip(turned, _LEFT_TO_RIGHT) if orientation.mirrored else turned, array)


def _rotated(array: Any, quarter_turns: int) -> Any:
    rotation = _ROTATIONS[quarter_turns]
    return array if rotation is None else cv2.rotate(array, rotation)


def _with_channels(turned: Any, array: NDArray[Any]) -> NDArray[Any]:
    """Return the array with the axis of channels of `array`, of which OpenCV drops one of length 1."""
    return turned.reshape(*turned.shape[:2], *array.shape[2:])  # type: ignore[no-any-return]
