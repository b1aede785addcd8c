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


class TilePlacement(NamedTuple):
    """The position of a picture in a tile: scaled to `scaled`, at the top left; the rest of the tile is padding.

    border: OpenCV's border mode that corresponds to the model's padding.
    """

    scaled: Size
    tile: Size
    border: int = cv2.BORDER_REFLECT_101


def lay_out(rule: SizeRule, height: int, width: int) -> TilePlacement:
    """Choose the smallest tile that holds a picture; scales the picture down if none does, or if models resize."""
    border = cv2.BORDER_REFLECT if rule.padding == "symmetric" else cv2.BORDER_REFLECT_101
    heights, widths = (sorted(sides) for sides in zip(*rule.tile_sizes(), strict=True))
    if rule.fit == "resize":
        tile = _smallest_sufficient_side(heights, height), _smallest_sufficient_side(widths, width)
        return TilePlacement(tile, tile, border)
    scale = max(1.0, height / heights[-1], width / widths[-1])
    scaled = max(1, round(height / scale)), max(1, round(width / scale))
    return TilePlacement(
        scaled, (_smallest_sufficient_side(heights, scaled[0]), _smallest_sufficient_side(widths, scaled[1])), border
    )


def picture_tile(pixels: Pixels, placement: TilePlacement, task: Task) -> Pixels:
    """Convert H×W×3 to the tile's size: Pillow's bicubic filter for translations, OpenCV's filters for inpainting."""
    if task == "translate" and pixels.shape[:2] != placement.scaled:
        resized = Image.fromarray(pixels).resize(placement.scaled[::-1], Image.Resampling.BICUBIC)
        return _padded(np.asarray(resized), placement)
    return _padded(_scaled(pixels, placement.scaled), placement)


def hole_tile(hole: NDArray[np.bool_], placement: TilePlacement) -> NDArray[np.uint8]:
    """Convert H×W to the tile's size, 1 = fill: a tile pixel is marked if any picture pixel in it is."""
    scaled = _rows_by_maximum(_rows_by_maximum(hole.astype(np.uint8), placement.scaled[0]).T, placement.scaled[1]).T
    return _padded(scaled, placement)


def ids_tile(ids: NDArray[Any], placement: TilePlacement) -> NDArray[Any]:
    """Convert ids H×W to the tile's size: the nearest source pixel, as in Pillow, so that ids are not mixed."""
    rows, columns = (
        ((np.arange(want) + 0.5) * have / want).astype(np.intp)
        for have, want in zip(ids.shape, placement.scaled, strict=True)
    )
    missing = [(0, tile - scaled) for tile, scaled in zip(placement.tile, placement.scaled, strict=True)]
    return np.pad(ids[rows[:, None], columns], missing, "reflect")


def picture_of_tile(tile: Pixels, placement: TilePlacement, size: Size) -> Pixels:
    """Cut the picture out of a tile and scale it back to its size."""
    return _scaled(tile[: placement.scaled[0], : placement.scaled[1]], size)


def _smallest_sufficient_side(ascending: list[int], least: int) -> int:
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


def _padded(values: NDArray[np.uint8], placement: TilePlacement) -> NDArray[np.uint8]:
    bottom, right = placement.tile[0] - values.shape[0], placement.tile[1] - values.shape[1]
    padded: Any = cv2.copyMakeBorder(np.ascontiguousarray(values), 0, bottom, 0, right, placement.border)
    return np.asarray(padded, np.uint8)
