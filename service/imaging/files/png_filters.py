"""Undoes the filters of PNGs' scanlines in C++ (ADR 40), an optional extension that an installation compiles.

It does not decide which files are accepted: png.py inflates and checks the data first.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
from numpy.typing import NDArray

from service.core.errors import InvalidImage
from service.core.pictures import Pixels
from service.imaging.files.header import Header
from service.lifecycle.compiled import address, load_library

_EXTENSION = f"{__package__}._png_filters"
"""Name of the extension module in pyproject.toml."""
_SOURCE = 0x48291C47
"""Digest of png_filters.cpp, by which a library of another version is rejected."""
_UNKNOWN_FILTER = 1


@cache
def installed_kernel() -> FiltersKernel | None:
    """Load the extension; None if Retouch was installed without it, or it is that of another version."""
    library = load_library(_EXTENSION, _SOURCE)
    return None if library is None else FiltersKernel(library)


class FiltersKernel:
    """The library that was compiled from png_filters.cpp."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._restore = library.restore_rows
        self._restore.argtypes = [ctypes.c_void_p, *[ctypes.c_int64] * 2, *[ctypes.c_int32] * 2, ctypes.c_void_p]

    def restore(self, lines: NDArray[np.uint8], header: Header) -> Pixels:
        """Undo the filters of a PNG of 8 or 16 bits that has neither a palette nor interlacing: H×W×C as stored.

        Args:
            lines: for each row a filter's type and the filtered samples.
            header: the header of the PNG.

        Raises:
            InvalidImage: a row has an unknown filter type.
            ValueError: the number of bytes does not match the header.
            MemoryError: memory for a row cannot be allocated.
        """
        height, width = header.stored
        channels, sample = (1 if header.colour == "grey" else 3) + header.alpha, header.bits // 8
        row_bytes = width * channels * sample
        if lines.size != height * (row_bytes + 1):
            raise ValueError(f"{lines.size} bytes do not match {height} rows of 1 + {row_bytes} bytes")
        pixels: Pixels = np.empty((height, width, channels), np.uint8 if sample == 1 else np.uint16)
        code = self._restore(address(lines), height, row_bytes, channels, sample, address(pixels))
        if code == _UNKNOWN_FILTER:
            raise InvalidImage("the PNG is corrupt: unknown filter type")
        if code:
            raise MemoryError(f"no memory to undo the filters of {height} × {row_bytes} bytes")
        return pixels
