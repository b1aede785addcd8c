"""Tiles back into the picture: scaled and converted back, and pasted only where the mask is. Pure.

Fill and picture are blended over a seam a few pixels wide inside the mask: docs/adr/0002-seam.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from engines.manifest import Manifest
from service.core.batch_rows import Crop
from service.core.pictures import Bool2D, Picture, Pixels, Size
from service.imaging.files.pixels import to_8_bits, to_channels
from service.imaging.pasting.areas import PasteArea, paste_areas
from service.imaging.pasting.blending import paste
from service.imaging.pasting.kernel import installed_kernel


def paste_fills(
    picture: Picture,
    mask: Bool2D,
    crops: Sequence[Crop],
    tiles: Sequence[NDArray[np.uint8]],
    areas_by_crop: Sequence[Sequence[PasteArea]] = (),
    *,
    in_place: bool = False,
) -> Picture:
    """Fill the holes of the picture, or of a copy, with the same depth, channels, alpha and colour profile.

    Pixels outside the mask are not changed. Alpha is kept, except that a mask which is fully transparent (an erased
    region) becomes opaque, because its fill would be invisible.

    Args:
        picture: the upload; it is not modified unless `in_place`.
        mask: H×W, True = fill.
        crops: planned by crops.py; their holes cover the mask.
        tiles: the model's output for each crop, uint8 H×W×C.
        areas_by_crop: results of `paste_areas` for the crops, if they are known already.
        in_place: whether the picture may be modified, because it is not needed any more.
    """
    pixels: Any = picture.pixels
    if not (in_place and pixels.flags.writeable):
        pixels = pixels.copy()
    for crop, tile, areas in zip(
        crops, tiles, areas_by_crop or [paste_areas(mask, crop) for crop in crops], strict=True
    ):
        if areas:
            _paste_crop(pixels, crop, tile, areas)
    return Picture(pixels, _filled_alpha(picture, mask), picture.icc, picture.halved_chroma)


def translated_picture(picture: Picture, crop: Crop, tile: NDArray[np.uint8], manifest: Manifest) -> Picture:
    """The model's picture scaled to the size of the upload, with 8 bits and the model's channels.

    Alpha is kept, as 8 bits. The colour profile is dropped, because the model's colours are sRGB.
    """
    region = to_channels(tile[: crop.scaled.height, : crop.scaled.width], 1 if manifest.output_channels == 1 else 3)
    alpha = None if picture.alpha is None else to_8_bits(picture.alpha)
    return Picture(_scale_to_size(region, picture.size), alpha, None)


def _paste_crop(pixels: Pixels, crop: Crop, tile: NDArray[np.uint8], areas: Sequence[PasteArea]) -> None:
    """Paste one crop's fill into `pixels`.

    It is blended with colours outside the mask, which crops that were pasted before have not changed.
    """
    box, kernel = crop.box, installed_kernel()
    region = tile[crop.below :, crop.right_of :][: crop.scaled.height, : crop.scaled.width]
    scaled = _scale_to_size(region, box.size)
    for area in areas:
        part = area.part
        target = pixels[part.top : part.bottom, part.left : part.right]
        within = slice(part.top - box.top, part.bottom - box.top), slice(part.left - box.left, part.right - box.left)
        (kernel.paste if kernel else paste)(target, _like_source(scaled[within], pixels), area.hole, area.seam)


def _like_source(fill: NDArray[np.uint8], source: Pixels) -> Pixels:
    converted = to_channels(fill, source.shape[2])
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
