"""Finds seams and pastes fills in C++, to the same bytes as seam.py and blending.py (ADR 51).

It is an optional extension, compiled when Retouch is installed.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from service.core.pictures import Bool2D, Pixels
from service.imaging.pasting.seam import Seam
from service.lifecycle.compiled import address, address_of_rows, load_library, with_whole_rows

_EXTENSION = f"{__package__}._pasting"
"""Name of the extension module in pyproject.toml."""
_SOURCE = 0x66DD6FE5
"""Digest of pasting.cpp, by which a library of another version is rejected."""


@cache
def installed_kernel() -> PastingKernel | None:
    """Load the extension; None if Retouch was installed without it, or it is that of another version."""
    library = load_library(_EXTENSION, _SOURCE)
    return None if library is None else PastingKernel(library)


class PastingKernel:
    """The library that was compiled from pasting.cpp."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.find_seam.restype, library.paste.restype = ctypes.c_int32, None

    def find_seam(self, mask: Bool2D, width: int) -> Seam:
        """Find the seam of a mask as `find_seam` of seam.py does.

        Args:
            mask: H×W, True = hole.
            width: width of the seam in pixels, 1 to 63.

        Raises:
            MemoryError: memory for the distances cannot be allocated.
        """
        mask = with_whole_rows(mask)
        capacity = int(np.count_nonzero(mask))
        indices, nearest = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
        weights = np.empty(capacity, np.float32)
        found = self._library.find_seam(
            *address_of_rows(mask), *mask.shape, width, address(indices), address(nearest), address(weights)
        )
        if found < 0:
            raise MemoryError("no memory for the seam of a mask of {} × {} pixels".format(*mask.shape))
        return Seam(indices[:found].copy(), nearest[:found].copy(), weights[:found].copy())

    def paste(self, picture: Pixels, fill: Pixels, hole: Bool2D, seam: Seam) -> None:
        """Paste a fill into a picture as `paste` of blending.py does; the fill is not changed.

        Args:
            picture: H×W×C, written to where the hole is; 8 or 16 bits.
            fill: H×W×C of the same type.
            hole: H×W, True where pixels are replaced.
            seam: found in the mask of all holes.

        Raises:
            ValueError: the pixels of a row of the picture are not contiguous, or the picture is read-only.
        """
        if not picture.flags.writeable:
            raise ValueError("the picture that fills are pasted into must be writable")
        fill, hole = with_whole_rows(fill), with_whole_rows(hole)
        rows = [part for array in (picture, fill, hole) for part in address_of_rows(array)]
        sample, channels = picture.itemsize, picture.shape[2]
        seam_arrays = (address(array) for array in (seam.indices, seam.nearest, seam.weights))
        self._library.paste(*rows, *hole.shape, sample * channels, sample, *seam_arrays, len(seam.indices))
