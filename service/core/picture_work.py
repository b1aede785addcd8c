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

    file: the JPEG, which was found sound; bytes, or uint8.
    planes: its planes.
    orientation: as in EXIF, 1 to 8.
    mask: uint8 H×W of the upright picture, 1 = fill.
    crops: where the tiles are cut out.
    parts: where their fills are pasted; None for a crop that fills nothing.
    symmetric: whether padding repeats the pixel at the edge.
    """

    file: bytes | NDArray[np.uint8]
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


@dataclass(frozen=True, slots=True, eq=False)
class PictureArrays:
    """The arrays, all uint8, that are written on a picture's way over a GPU.

    tiles: H×W×3, one for each crop. masks: H×W, one for each crop. fills: H×W×3, the engine's tiles.
    result: the finished picture, H×W×3.
    locked: whether they are in page-locked memory.
    """

    tiles: tuple[NDArray[np.uint8], ...]
    masks: tuple[NDArray[np.uint8], ...]
    fills: tuple[NDArray[np.uint8], ...]
    result: NDArray[np.uint8]
    locked: bool = False


def new_arrays(work: PictureWork) -> PictureArrays:
    """Arrays in this process's memory."""
    tiles, fills = (tuple(np.empty((*crop.tile, 3), np.uint8) for crop in work.crops) for _ in range(2))
    masks = tuple(np.empty(crop.tile, np.uint8) for crop in work.crops)
    return PictureArrays(tiles, masks, fills, np.empty((*work.size, 3), np.uint8))
