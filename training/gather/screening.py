"""Screens one picture: decodes it, rotates it by EXIF, rejects or crops and shrinks it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from typing import Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from training.data.rgb import to_rgb
from training.gather.recipe import Recipe

Pixels = NDArray[np.uint8]
"""H×W×3, RGB."""

_TILE_SCALE = 3
"""Tiles along the shorter side of a picture: they show finer detail than the whole picture, and are still sharp."""


Rejected = Literal["broken", "small", "flat"]
"""The reason why a file gives no picture; the manifest counts them."""


class ScreenedPicture(NamedTuple):
    """A picture to write, and its fingerprint."""

    pixels: Pixels
    fingerprint: int


def screen(data: bytes, recipe: Recipe, crops: int) -> list[ScreenedPicture] | Rejected:
    """Return the pictures to keep of one file (the whole, shrunk, and up to `crops` tiles), or the reason for none."""
    pixels = decode(data, (_TILE_SCALE if crops else 1) * recipe.max_side)
    if pixels is None:
        return "broken"
    if min(pixels.shape[:2]) < recipe.min_source_side:
        return "small"
    whole = resize(_crop_longer_side(pixels, recipe.max_aspect), recipe.min_side, recipe.max_side)
    if contrast(whole) < recipe.min_contrast:
        return "flat"
    return [ScreenedPicture(kept, fingerprint(kept)) for kept in (whole, *_cut_tiles(pixels, recipe, crops))]


def decode(data: bytes, wanted: int) -> Pixels | None:
    """Decode to RGB pixels, rotated by EXIF; None if the bytes are not a complete picture.

    A JPEG is scaled by its decoder to a shorter side not under 2 × `wanted`, which is far faster.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd metadata; the pixels are checked below
            with Image.open(io.BytesIO(data)) as image:
                image.draft("RGB", (2 * wanted, 2 * wanted))
                return to_rgb(ImageOps.exif_transpose(image))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def resize(pixels: Pixels, min_side: int, max_side: int) -> Pixels:
    """Bring the shorter side to `min_side` … `max_side` pixels: down by averaging areas, up by cubic interpolation."""
    height, width = pixels.shape[:2]
    side = min(max(min(height, width), min_side), max_side)
    scale = side / min(height, width)
    size = max(side, round(width * scale)), max(side, round(height * scale))
    filtering = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return cv2.resize(pixels, size, interpolation=filtering).astype(np.uint8, copy=False)


def contrast(pixels: Pixels) -> float:
    """Compute the standard deviation of the grey values; below about 10 a picture shows almost nothing."""
    return float(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY).std())


def fingerprint(pixels: Pixels) -> int:
    """Compute a 64-bit perceptual hash: whether each of the 8×8 lowest DCT terms (of 32×32 grey) exceeds their median.

    Pictures that differ in scale, quality or a little in exposure differ in a few bits, unrelated ones in about 32.
    Source: "Looks Like It", N. Krawetz, hackerfactor.com, 2011 (pHash).
    """
    grey = cv2.resize(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), (32, 32), interpolation=cv2.INTER_AREA)
    low = cv2.dct(grey.astype(np.float32))[:8, :8].ravel()
    bits = low > np.median(low[1:])
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def crops_for_fingerprints(pixels: Pixels) -> Iterator[Pixels]:
    """Yield the crops that another data set may have, each also mirrored: whole, without border, five squares.

    The fingerprint of the whole picture does not match a square crop: horse2zebra has one of a BSDS500 picture.
    """
    height, width = pixels.shape[:2]
    side = min(height, width)
    border = side // 16
    cuts = [pixels, pixels[border : height - border, border : width - border]]
    for quarter in range(5):
        top, left = (height - side) * quarter // 4, (width - side) * quarter // 4
        cuts.append(pixels[top : top + side, left : left + side])
    for cut in cuts:
        yield cut
        yield cut[:, ::-1]


def _crop_longer_side(pixels: Pixels, max_aspect: float) -> Pixels:
    """Crop the longer side to at most `max_aspect` times the shorter."""
    height, width = pixels.shape[:2]
    most = round(min(height, width) * max_aspect)
    top, left = max(0, height - most) // 2, max(0, width - most) // 2
    return pixels[top : top + most, left : left + most]


def _cut_tiles(pixels: Pixels, recipe: Recipe, crops: int) -> list[Pixels]:
    """Return the most detailed tiles of a grid, without flat ones; empty if the picture is too small."""
    side = recipe.max_side
    if not crops or min(pixels.shape[:2]) < 2 * side:
        return []
    small = resize(pixels, 2 * side, _TILE_SCALE * side)
    height, width = small.shape[:2]
    tiles = [
        small[top : top + side, left : left + side]
        for top in range(0, height - side + 1, side)
        for left in range(0, width - side + 1, side)
    ]
    detailed = sorted((tile for tile in tiles if contrast(tile) >= recipe.min_contrast), key=contrast, reverse=True)
    return detailed[:crops]
