"""Comparison of the pictures that a GPU gives with those of the CPU's code, on a few that are made for it."""

from __future__ import annotations

from concurrent.futures import TimeoutError as AnswerTimeoutError
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from engines.errors import EngineError
from service.core.batch_rows import Crop
from service.core.picture_work import JpegPlanes, PictureWork, new_arrays
from service.core.pictures import Bool2D, Box, Size
from service.devices.pictures.lane_pool import LanePool
from service.imaging.files.codec import decode
from service.imaging.postprocess import paste_fills
from service.imaging.preprocess import cut_and_scale, pad_to_tile
from service.imaging.seam import paste_part

_SIZE = Size(150, 210)
_TIMEOUT_S = 20.0
_FIRST_SIDEWAYS = 5
"""From this orientation on, a file has the upright picture's sides exchanged."""
_CROPS = (
    Crop(Box(0, 0, 150, 210), Size(150, 210), Size(160, 224)),
    Crop(Box(10, 20, 140, 200), Size(61, 83), Size(64, 96)),
    Crop(Box(30, 40, 100, 110), Size(91, 97), Size(96, 128), None, 3, 5),
)
"""A picture that is padded, a crop that is scaled down, and one that is scaled up and lies within its tile."""


_FILES = (("4:4:4", (1, 1), 1), ("4:2:2", (2, 1), 6), ("4:2:0", (2, 2), 1))
"""Kinds of files: the name that Pillow has for one, its chroma, and how it is turned, as in EXIF."""


def difference_from_cpu(pool: LanePool, seed: int = 7) -> str:
    """Return how the GPU's pictures differ from the CPU's; empty if they do not. Nobody else uses the pool.

    `seed` gives other pictures, in which memory that was left over shows.
    Tiles and fills may be one level off where they are scaled. Masks, and pixels outside a mask, must be equal.
    """
    for kind, factors, orientation in _FILES:
        for crop in _CROPS:
            try:
                reason = _difference(pool, _file(kind, orientation, seed), factors, orientation, crop)
            except (EngineError, AnswerTimeoutError) as error:
                return f"the comparison with the CPU failed: {error or 'no answer'}"
            if reason:
                return f"{reason} ({kind}, turned as {orientation}, a tile of {crop.tile})"
    return ""


def _difference(pool: LanePool, data: bytes, chroma: tuple[int, int], orientation: int, crop: Crop) -> str:
    mask = _mask()
    stored = _SIZE if orientation < _FIRST_SIDEWAYS else Size(*reversed(_SIZE))
    planes = JpegPlanes(*stored, *chroma)
    work = PictureWork(data, planes, orientation, mask.view(np.uint8), (crop,), (paste_part(mask, crop),))
    upload = decode(data, max_pixels=10**6)
    tile, tile_mask = (pad_to_tile(part, crop) for part in cut_and_scale(upload, mask, crop, 3))
    every = [new_arrays(work) for _ in range(pool.lanes)]
    pictures = [  # one for each lane; every other as page-locked ones are copied, which is right for any memory
        pool.begin(work, arrays.tiles, arrays.masks, locked=bool(number % 2)) for number, arrays in enumerate(every)
    ]
    try:
        for picture, arrays in zip(pictures, every, strict=True):
            picture.cut.result(_TIMEOUT_S)
            if not np.array_equal(arrays.masks[0], tile_mask):
                return "the mask of a tile differs from the CPU's"
            if _levels_off(arrays.tiles[0], tile) > 1:
                return "a tile differs from the CPU's by more than one level"
            fill = 255 - arrays.tiles[0]
            picture.paste((fill,), arrays.result).result(_TIMEOUT_S)
            expected = np.asarray(paste_fills(upload, mask, (crop,), (fill,)).pixels, np.uint8)
            if not np.array_equal(arrays.result[~mask], expected[~mask]):
                return "the picture outside the mask differs from the CPU's"
            if _levels_off(arrays.result, expected) > 1:
                return "the filled picture differs from the CPU's by more than one level"
    finally:
        for picture in pictures:
            picture.end()
    return ""


def _levels_off(ours: NDArray[np.uint8], theirs: NDArray[np.uint8]) -> int:
    return int(np.abs(ours.astype(np.int16) - theirs).max())


def _file(kind: str, orientation: int, seed: int) -> bytes:
    """A JPEG of noise with large and small structures, upright in `_SIZE`."""
    draw = np.random.default_rng(seed)
    stored = _SIZE if orientation < _FIRST_SIDEWAYS else Size(*reversed(_SIZE))
    coarse = draw.integers(0, 256, (stored.height // 10, stored.width // 10, 3), np.uint8).repeat(10, 0).repeat(10, 1)
    fine = draw.integers(-40, 41, (*stored, 3))
    pixels = np.clip(coarse.astype(np.int16) + fine, 0, 255).astype(np.uint8)
    exif, file = Image.Exif(), BytesIO()
    exif[ExifTags.Base.Orientation] = orientation
    Image.fromarray(pixels).save(file, "JPEG", quality=90, subsampling=kind, exif=exif)
    return file.getvalue()


def _mask() -> Bool2D:
    mask = np.zeros(_SIZE, np.bool_)
    mask[40:90, 60:100] = True
    mask[70:75, 30:180] = True
    mask[::23, 105] = True
    return mask
