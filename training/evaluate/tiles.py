"""Pictures and holes into a net's tile and back, pixel for pixel as the service does it with `strategy=whole`. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engines.manifest import SizeRule, Task
from training.evaluate.cases import Pixels

Size = tuple[int, int]
"""Height and width."""


class Layout(NamedTuple):
    """The picture, scaled to `scaled`, lies at the tile's top left; the rest of the tile is reflected padding."""

    scaled: Size
    tile: Size


def lay_out(rule: SizeRule, height: int, width: int) -> Layout:
    """The smallest tile that holds a picture, which is scaled down where none does, or resized where models do so."""
    heights, widths = (sorted(sides) for sides in zip(*rule.buckets(), strict=True))
    if rule.fit == "resize":
        tile = _first_from(heights, height), _first_from(widths, width)
        return Layout(tile, tile)
    scale = max(1.0, height / heights[-1], width / widths[-1])
    scaled = max(1, round(height / scale)), max(1, round(width / scale))
    return Layout(scaled, (_first_from(heights, scaled[0]), _first_from(widths, scaled[1])))


def picture_tile(pixels: Pixels, layout: Layout, task: Task) -> Pixels:
    """H×W×3 to the tile's size: by Pillow's bicubic filter for translations, by OpenCV's filters for inpainting."""
    if task == "translate" and pixels.shape[:2] != layout.scaled:
        resized = Image.fromarray(pixels).resize(layout.scaled[::-1], Image.Resampling.BICUBIC)
        return _padded(np.asarray(resized), layout)
    return _padded(_scaled(pixels, layout.scaled), layout)


def hole_tile(hole: NDArray[np.bool_], layout: Layout) -> NDArray[np.uint8]:
    """H×W to the tile's size, 1 = fill: a pixel of the tile is marked where any of the picture's pixels in it is."""
    scaled = _rows_by_maximum(_rows_by_maximum(hole.astype(np.uint8), layout.scaled[0]).T, layout.scaled[1]).T
    return _padded(scaled, layout)


def picture_of_tile(tile: Pixels, layout: Layout, size: Size) -> Pixels:
    """The picture's part of a tile, scaled back to its size."""
    return _scaled(tile[: layout.scaled[0], : layout.scaled[1]], size)


def _first_from(ascending: list[int], least: int) -> int:
    return next((side for side in ascending if side >= least), ascending[-1])


def _scaled(pixels: Pixels, size: Size) -> Pixels:
    if pixels.shape[:2] == size:
        return pixels
    shrinks = pixels.shape[0] >= size[0] and pixels.shape[1] >= size[1]
    scaled: Any = cv2.resize(
        np.ascontiguousarray(pixels), size[::-1], interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC
    )
    return np.asarray(scaled, np.uint8)


def _rows_by_maximum(values: NDArray[np.uint8], height: int) -> NDArray[np.uint8]:
    """Each of the `height` rows is the maximum of all rows that it touches."""
    have = values.shape[0]
    first = np.arange(height) * have // height
    last = -(-np.arange(1, height + 1) * have // height) - 1
    scaled: NDArray[np.uint8] = values[first]
    for step in range(1, int((last - first).max()) + 1):
        np.maximum(scaled, values[np.minimum(first + step, last)], out=scaled)
    return scaled


def _padded(values: NDArray[np.uint8], layout: Layout) -> NDArray[np.uint8]:
    bottom, right = layout.tile[0] - values.shape[0], layout.tile[1] - values.shape[1]
    padded: Any = cv2.copyMakeBorder(np.ascontiguousarray(values), 0, bottom, 0, right, cv2.BORDER_REFLECT_101)
    return np.asarray(padded, np.uint8)
