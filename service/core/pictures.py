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

    @property
    def area(self) -> int:
        return (self.bottom - self.top) * (self.right - self.left)

    def overlaps(self, other: Box) -> bool:
        """Whether the two have a pixel in common."""
        rows = self.top < other.bottom and other.top < self.bottom
        return rows and self.left < other.right and other.left < self.right

    def joined(self, other: Box) -> Box:
        """The smallest box that contains both."""
        return Box(
            min(self.top, other.top),
            min(self.left, other.left),
            max(self.bottom, other.bottom),
            max(self.right, other.right),
        )

    def moved(self, down: int, right: int) -> Box:
        return Box(self.top + down, self.left + right, self.bottom + down, self.right + right)

    def grown(self, margin: int, limit: Size) -> Box:
        """The box grown by `margin` pixels on each side, clipped to a picture of size `limit`."""
        return Box(
            max(0, self.top - margin),
            max(0, self.left - margin),
            min(limit.height, self.bottom + margin),
            min(limit.width, self.right + margin),
        )


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
    halved_chroma: whether the file was a JPEG whose colours have half its height and width (4:2:0).
    """

    pixels: Pixels
    alpha: Pixels | None = None
    icc: bytes | None = None
    halved_chroma: bool = False

    @property
    def size(self) -> Size:
        return Size(*self.pixels.shape[:2])
