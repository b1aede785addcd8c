"""Compares a GPU's way with pictures with the CPU's code, on a few pictures that are made for it."""

from __future__ import annotations

from concurrent.futures import TimeoutError as AnswerTimeoutError

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from engines.errors import EngineError
from service.core.batch_rows import Crop
from service.core.picture_work import JpegPlanes, PictureWork, new_arrays
from service.core.pictures import Bool2D, Box, Size
from service.devices.pictures.room import PictureRoom
from service.imaging.files.codec import decode
from service.imaging.postprocess import paste_fills, paste_part

_SIDES = (150, 210)
_CHROMA = {"444": (1, 1), "420": (2, 2)}
_TIMEOUT_S = 20.0
_CROPS = (
    Crop(Box(0, 0, 150, 210), Size(150, 210), Size(160, 224)),
    Crop(Box(10, 20, 140, 200), Size(61, 83), Size(64, 96)),
    Crop(Box(30, 40, 100, 110), Size(91, 97), Size(96, 128), None, 3, 5),
)
"""A picture that is padded, a crop that is scaled down, and one that is scaled up and lies within its tile."""


def difference_from_cpu(room: PictureRoom) -> str:
    """Return how the GPU's pictures differ from the CPU's by more than one level; empty if they do not.

    The steps up to a tile are seen in the pasted picture, because its fill is made of the tile.
    """
    for chroma, factors in _CHROMA.items():
        for crop in _CROPS:
            try:
                reason = _difference(room, chroma, JpegPlanes(*_SIDES, *factors), crop)
            except (EngineError, AnswerTimeoutError) as error:
                return f"the comparison with the CPU failed: {error or 'no answer'}"
            if reason:
                return f"{reason} differs from the CPU's by more than one level ({chroma}, a tile of {crop.tile})"
    return ""


def _difference(room: PictureRoom, chroma: str, planes: JpegPlanes, crop: Crop) -> str:
    data, mask = _picture(chroma), _mask()
    work = PictureWork(data, planes, 1, mask.view(np.uint8), (crop,), (paste_part(mask, crop),))
    arrays = new_arrays(work)
    picture = room.begin(work, arrays.tiles, arrays.masks)
    try:
        picture.cut.result(_TIMEOUT_S)
        fill = 255 - arrays.tiles[0]
        picture.paste((fill,), arrays.result).result(_TIMEOUT_S)
    finally:
        picture.end()
    expected = paste_fills(decode(data, max_pixels=10**6), mask, (crop,), (fill,)).pixels
    return _first_wrong(arrays.result, np.asarray(expected, np.uint8))


def _first_wrong(ours: NDArray[np.uint8], theirs: NDArray[np.uint8]) -> str:
    return "the picture" if int(np.abs(ours.astype(np.int16) - theirs).max()) > 1 else ""


def _picture(chroma: str) -> bytes:
    """A JPEG of noise with large and small structures."""
    draw = np.random.default_rng(7)
    coarse = draw.integers(0, 256, (_SIDES[0] // 10, _SIDES[1] // 10, 3), np.uint8).repeat(10, 0).repeat(10, 1)
    fine = draw.integers(-40, 41, (*_SIDES, 3))
    pixels = np.ascontiguousarray(np.clip(coarse.astype(np.int16) + fine, 0, 255).astype(np.uint8))
    return bytes(simplejpeg.encode_jpeg(pixels, 90, "RGB", chroma))


def _mask() -> Bool2D:
    mask = np.zeros(_SIDES, np.bool_)
    mask[40:90, 60:100] = True
    mask[70:75, 30:180] = True
    mask[::23, 105] = True
    return mask
