"""A picture's way over a GPU, as its mask alone decides it: what is decoded, cut out, and pasted back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.batch_rows import Crop
from service.core.pictures import Bool2D, Box, Size


class JpegPlanes(NamedTuple):
    """The planes of a JPEG as stored: its size, and how many pixels one value of chroma covers, across and down."""

    height: int
    width: int
    across: int
    down: int

    @property
    def chroma(self) -> Size:
        """Size of a plane of chroma."""
        return Size(-(-self.height // self.down), -(-self.width // self.across))


@dataclass(frozen=True, slots=True)
class PastePart:
    """The part of a picture that a crop's fill is pasted into.

    part: box in the picture around the crop's part of the mask.
    hole: mask of `part`, True where pixels are replaced.
    seam: width of the seam in pixels.
    """

    part: Box
    hole: Bool2D
    seam: int


@dataclass(frozen=True, slots=True, eq=False)
class PictureWork:
    """An encoded picture, and what a GPU does with it.

    file: the JPEG, which was found sound.
    planes: its planes.
    orientation: as in EXIF, 1 to 8.
    mask: uint8 H×W of the upright picture, 1 = fill.
    crops: where the tiles are cut out.
    parts: where their fills are pasted; None for a crop that fills nothing.
    symmetric: whether padding repeats the pixel at the edge.
    """

    file: bytes
    planes: JpegPlanes
    orientation: int
    mask: NDArray[np.uint8]
    crops: tuple[Crop, ...]
    parts: tuple[PastePart | None, ...]
    symmetric: bool = False

    @property
    def size(self) -> Size:
        """Size of the upright picture."""
        return Size(*self.mask.shape)
