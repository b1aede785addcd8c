"""Screens one picture: decodes, rotates by EXIF, judges, crops and shrinks it."""

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
"""Tiles are cut where the shorter side holds this many of them: finer detail than the whole shows, still sharp."""


Rejected = Literal["broken", "small", "flat"]
"""Why a file gives no picture; the manifest counts them."""


class ScreenedPicture(NamedTuple):
    """A picture to write, and its fingerprint."""

    pixels: Pixels
    fingerprint: int


def screen(data: bytes, recipe: Recipe, crops: int) -> list[ScreenedPicture] | Rejected:
    """Return the pictures to keep of one file, or why there are none: the whole, shrunk, and up to `crops` tiles."""
    pixels = decode(data, (_TILE_SCALE if crops else 1) * recipe.side)
    if pixels is None:
        return "broken"
    if min(pixels.shape[:2]) < recipe.smallest:
        return "small"
    whole = resize(_crop_longer_side(pixels, recipe.longest), recipe.least, recipe.side)
    if flatness(whole) < recipe.flattest:
        return "flat"
    return [ScreenedPicture(kept, fingerprint(kept)) for kept in (whole, *_cut_tiles(pixels, recipe, crops))]


def decode(data: bytes, wanted: int) -> Pixels | None:
    """Decode to RGB pixels, rotated by EXIF; None if the bytes are not a complete picture.

    A JPEG is scaled by its decoder to a shorter side not under 2 × `wanted`, which is far faster.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about odd metadata; the pixels are checked below
            with Image.open(io.BytesIO(data)) as image:
                image.draft("RGB", (2 * wanted, 2 * wanted))
                return to_rgb(ImageOps.exif_transpose(image))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def resize(pixels: Pixels, least: int, most: int) -> Pixels:
    """Bring the shorter side into `least` … `most` pixels: down by averaging areas, up by cubic interpolation."""
    height, width = pixels.shape[:2]
    side = min(max(min(height, width), least), most)
    scale = side / min(height, width)
    size = max(side, round(width * scale)), max(side, round(height * scale))
    filtering = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return cv2.resize(pixels, size, interpolation=filtering).astype(np.uint8, copy=False)


def flatness(pixels: Pixels) -> float:
    """Compute the standard deviation of the grey values; below about 10 there is nothing to learn from."""
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
    """Yield the crops that other data sets may have: whole, five squares along it, without its border; each mirrored.

    The whole picture alone would not match a square crop: horse2zebra has such a crop of one of BSDS500's zebras.
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


def _crop_longer_side(pixels: Pixels, longest: float) -> Pixels:
    """Crop the longer side to at most `longest` times the shorter."""
    height, width = pixels.shape[:2]
    most = round(min(height, width) * longest)
    top, left = max(0, height - most) // 2, max(0, width - most) // 2
    return pixels[top : top + most, left : left + most]


def _cut_tiles(pixels: Pixels, recipe: Recipe, crops: int) -> list[Pixels]:
    """Return the most detailed tiles of a grid, without flat ones; empty if the picture is too small."""
    side = recipe.side
    if not crops or min(pixels.shape[:2]) < 2 * side:
        return []
    small = resize(pixels, 2 * side, _TILE_SCALE * side)
    height, width = small.shape[:2]
    tiles = [
        small[top : top + side, left : left + side]
        for top in range(0, height - side + 1, side)
        for left in range(0, width - side + 1, side)
    ]
    lively = sorted((tile for tile in tiles if flatness(tile) >= recipe.flattest), key=flatness, reverse=True)
    return lively[:crops]
