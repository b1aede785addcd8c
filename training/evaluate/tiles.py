"""Fits pictures and holes into a net's tile and back, pixel for pixel as the service does with `strategy=whole`."""

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
    """The position of a picture in a tile: scaled to `scaled`, at the top left; the rest is reflected padding."""

    scaled: Size
    tile: Size


def lay_out(rule: SizeRule, height: int, width: int) -> Layout:
    """Choose the smallest tile that holds a picture; scales the picture down if none does, or if models resize."""
    heights, widths = (sorted(sides) for sides in zip(*rule.buckets(), strict=True))
    if rule.fit == "resize":
        tile = _first_from(heights, height), _first_from(widths, width)
        return Layout(tile, tile)
    scale = max(1.0, height / heights[-1], width / widths[-1])
    scaled = max(1, round(height / scale)), max(1, round(width / scale))
    return Layout(scaled, (_first_from(heights, scaled[0]), _first_from(widths, scaled[1])))


def picture_tile(pixels: Pixels, layout: Layout, task: Task) -> Pixels:
    """Convert H×W×3 to the tile's size: Pillow's bicubic filter for translations, OpenCV's filters for inpainting."""
    if task == "translate" and pixels.shape[:2] != layout.scaled:
        resized = Image.fromarray(pixels).resize(layout.scaled[::-1], Image.Resampling.BICUBIC)
        return _padded(np.asarray(resized), layout)
    return _padded(_scaled(pixels, layout.scaled), layout)


def hole_tile(hole: NDArray[np.bool_], layout: Layout) -> NDArray[np.uint8]:
    """Convert H×W to the tile's size, 1 = fill: a tile pixel is marked if any picture pixel in it is."""
    scaled = _rows_by_maximum(_rows_by_maximum(hole.astype(np.uint8), layout.scaled[0]).T, layout.scaled[1]).T
    return _padded(scaled, layout)


def picture_of_tile(tile: Pixels, layout: Layout, size: Size) -> Pixels:
    """Cut the picture out of a tile and scale it back to its size."""
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
    """Resize to `height` rows, each the maximum of all rows that it touches."""
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
