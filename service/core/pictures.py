"""Decoded pictures, their sizes and rectangles, and the image formats that are read and written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

ImageFormat = Literal["png", "jpeg", "webp"]
MaskMode = Literal["white", "black", "alpha"]
Pixels = NDArray[np.uint8] | NDArray[np.uint16]
Bool2D = NDArray[np.bool_]


class Size(NamedTuple):
    """Height and width in pixels."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.width}×{self.height}"


class Box(NamedTuple):
    """A half-open rectangle in a picture: rows top..bottom, columns left..right."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def size(self) -> Size:
        return Size(self.bottom - self.top, self.right - self.left)


class Brightness(NamedTuple):
    """The minimum and maximum luminance in a mask, and the threshold from which a pixel counts as white."""

    darkest: int
    brightest: int
    half: int

    @property
    def maximum(self) -> int:
        """The maximum luminance that a pixel can have: 255, or 65,535 in a 16-bit file."""
        return 2 * self.half - 1


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded image, with its EXIF orientation applied.

    pixels: H×W×C, C = 1 (grey) or 3 (RGB), uint8 or uint16 (16-bit PNG).
    alpha: H×W of the same dtype, or None.
    icc: the colour profile of the file, or None.
    """

    pixels: Pixels
    alpha: Pixels | None = None
    icc: bytes | None = None

    @property
    def size(self) -> Size:
        return Size(*self.pixels.shape[:2])
