"""Tiles back into the picture: scaled and converted back, and pasted only where the mask is. Pure.

Fill and picture are blended over a seam a few pixels wide inside the mask: docs/adr/0002-seam.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from engines.manifest import Manifest
from service.core.batch_rows import Crop
from service.core.picture_work import PastePart
from service.core.pictures import Bool2D, Box, Picture, Pixels, Size
from service.imaging.files.pixels import to_8_bits, to_channels

FEATHER = 4
"""Width of the seam in pixels of the tile, inside the mask."""
_LEAST_DISTANCE = 0.5
"""Threshold between the distance of pixels outside the mask, 0, and of the first ones inside, 1."""
MAX_FEATHER = 16
"""Largest width of the seam in pixels of the picture, where a tile is scaled up."""


@dataclass(frozen=True, slots=True)
class PasteArea:
    """Where a crop's fill is pasted, computed from the mask alone.

    part: box in the picture around the crop's part of the mask.
    hole: mask of `part`, True where pixels are replaced.
    seam, nearest: pixels of the seam, and for each the nearest pixel outside the mask; flat indices in `part`.
    weight: float, one column: the weight of the fill at each pixel of the seam, 0 to 1.
    """

    part: Box
    hole: Bool2D
    seam: NDArray[np.int64]
    nearest: NDArray[np.int64]
    weight: NDArray[np.floating[Any]]


def paste_area(mask: Bool2D, crop: Crop) -> PasteArea | None:
    """Find where a crop's fill is pasted; None if it fills nothing.

    Args:
        mask: H×W of the picture, True = fill.
        crop: planned by crops.py.
    """
    found = paste_part(mask, crop)
    if found is None:
        return None
    part = found.part
    seam = _find_seam(mask[part.top : part.bottom, part.left : part.right], found.seam)
    return PasteArea(part, found.hole, *seam)


def paste_part(mask: Bool2D, crop: Crop) -> PastePart | None:
    """Find the part of the picture that a crop's fill is pasted into, without its seam; as `paste_area`."""
    box = crop.box
    hole = mask[box.top : box.bottom, box.left : box.right] if crop.hole is None else crop.hole
    x, y, width, height = cv2.boundingRect(np.ascontiguousarray(hole).view(np.uint8))
    if not width:
        return None
    seam = min(MAX_FEATHER, round(FEATHER * max(1.0, box.size.width / crop.scaled.width)))
    part = _grow_box(Box(box.top + y, box.left + x, box.top + y + height, box.left + x + width), box, seam + 1)
    within = slice(part.top - box.top, part.bottom - box.top), slice(part.left - box.left, part.right - box.left)
    return PastePart(part, hole[within], seam)


def paste_fills(
    picture: Picture,
    mask: Bool2D,
    crops: Sequence[Crop],
    tiles: Sequence[NDArray[np.uint8]],
    places: Sequence[PasteArea | None] = (),
) -> Picture:
    """Fill the holes in a copy of the picture, with the same depth, channels, alpha and colour profile.

    Pixels outside the mask are not changed. Alpha is kept, except that a mask which is fully transparent (an erased
    region) becomes opaque, because its fill would be invisible.

    Args:
        picture: the upload; it is not modified.
        mask: H×W, True = fill.
        crops: planned by crops.py; their holes cover the mask.
        tiles: the model's output for each crop, uint8 H×W×C.
        places: results of `paste_area` for the crops, if they are known already.
    """
    pixels: Any = picture.pixels.copy()
    for crop, tile, where in zip(crops, tiles, places or [paste_area(mask, crop) for crop in crops], strict=True):
        if where is not None:
            _paste_crop(pixels, picture.pixels, crop, tile, where)
    return Picture(pixels, _filled_alpha(picture, mask), picture.icc)


def translated_picture(picture: Picture, crop: Crop, tile: NDArray[np.uint8], manifest: Manifest) -> Picture:
    """The model's picture scaled to the size of the upload, with 8 bits and the model's channels.

    Alpha is kept, as 8 bits. The colour profile is dropped, because the model's colours are sRGB.
    """
    region = to_channels(tile[: crop.scaled.height, : crop.scaled.width], 1 if manifest.output_channels == 1 else 3)
    alpha = None if picture.alpha is None else to_8_bits(picture.alpha)
    return Picture(_scale_to_size(region, picture.size), alpha, None)


def _paste_crop(pixels: Pixels, source: Pixels, crop: Crop, tile: NDArray[np.uint8], where: PasteArea) -> None:
    """Paste one crop's fill into `pixels`; over the seam it is blended with the nearest colour outside the mask.

    Uses few calls on whole arrays, which release the interpreter's lock.
    """
    box, part = crop.box, where.part
    rows, columns = slice(part.top, part.bottom), slice(part.left, part.right)
    within = slice(part.top - box.top, part.bottom - box.top), slice(part.left - box.left, part.right - box.left)
    region = tile[crop.below :, crop.right_of :][: crop.scaled.height, : crop.scaled.width]
    fill = _like_source(_scale_to_size(region, box.size)[within], source)
    if where.seam.size:
        nearest = _as_pixel_rows(source[rows, columns]).take(where.nearest, axis=0)
        filled = _as_pixel_rows(fill)
        own = np.multiply(where.weight, filled.take(where.seam, axis=0), dtype=np.float32)
        own += np.multiply(1 - where.weight, nearest, dtype=np.float32)
        filled[where.seam] = np.rint(own, out=own)
    _copy_where(pixels[rows, columns], fill, where.hole)


def _find_seam(mask: Bool2D, width: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.floating[Any]]]:
    """The seam, `width` pixels wide, of a mask: its pixels, for each the nearest pixel outside, and the weights."""
    inside = np.ascontiguousarray(mask).view(np.uint8)
    outside = np.flatnonzero(inside == 0)
    if not outside.size:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 1), np.float32)
    # labels of the pixels in `outside` are 1, 2, … in this order
    distance, labels = cv2.distanceTransformWithLabels(inside, cv2.DIST_L2, 3, labelType=cv2.DIST_LABEL_PIXEL)
    # np.flatnonzero is four times faster on booleans than on numbers
    seam = np.flatnonzero((distance >= _LEAST_DISTANCE) & (distance <= width))
    nearest = outside.take(labels.reshape(-1).take(seam).astype(np.int64) - 1)
    return seam, nearest, (distance.take(seam) / (width + 1))[:, None]


def _as_pixel_rows(pixels: Any) -> Any:
    """Reshape H×W×C to (H·W)×C; copies if the pixels are not contiguous."""
    return pixels.reshape(-1, pixels.shape[2])


def _copy_where(target: Pixels, source: Any, where: Bool2D) -> None:
    """Overwrite `target`, which may be a view of a picture, with `source` where the mask is True; in place."""
    cv2.copyTo(source, np.ascontiguousarray(where).view(np.uint8), target)


def _like_source(fill: NDArray[np.uint8], source: Pixels) -> Pixels:
    converted = to_channels(fill.copy(), source.shape[2])
    return converted if source.dtype == np.uint8 else converted.astype(np.uint16) * np.uint16(257)


def _scale_to_size(region: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    if Size(*region.shape[:2]) == size:
        return region
    shrinks = region.shape[0] >= size.height and region.shape[1] >= size.width
    how = cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC
    scaled: Any = cv2.resize(np.ascontiguousarray(region), (size.width, size.height), interpolation=how)
    return np.asarray(scaled, np.uint8).reshape(*size, -1)


def _filled_alpha(picture: Picture, mask: Bool2D) -> Pixels | None:
    if picture.alpha is None or picture.alpha[mask].any():
        return picture.alpha
    opaque: Any = np.where(mask, np.iinfo(picture.alpha.dtype).max, picture.alpha)
    alpha: Pixels = opaque.astype(picture.alpha.dtype)
    return alpha


def _grow_box(box: Box, limit: Box, margin: int) -> Box:
    return Box(
        max(limit.top, box.top - margin),
        max(limit.left, box.left - margin),
        min(limit.bottom, box.bottom + margin),
        min(limit.right, box.right + margin),
    )
