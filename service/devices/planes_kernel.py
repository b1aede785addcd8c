"""Converts the pixels of a tile to planes of floats and back in C++, to the same bytes as planes.py (ADR 51).

It is an optional extension, compiled when Retouch is installed. One call for a tile replaces ten of OpenCV and numpy,
each of which releases the GIL.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.devices.planes import Tile
from service.lifecycle.compiled import load_library, reference

_EXTENSION = f"{__package__}._planes"
"""Name of the extension module in pyproject.toml."""
_SOURCE = 0xA907439C
"""Digest of planes.cpp, by which a library of another version is rejected."""
_MAX_PIXELS_WITH_GIL = 128 * 128
"""Largest tile in pixels for which the GIL is kept: a call takes 20 µs, reacquiring the GIL up to 500 µs."""


@cache
def installed_kernel() -> PlanesKernel | None:
    """Load the extension; None if Retouch was installed without it, or it is that of another version."""
    if (library := load_library(_EXTENSION, _SOURCE)) is None:
        return None
    gil_library = load_library(_EXTENSION, _SOURCE, ctypes.PyDLL)
    return None if gil_library is None else PlanesKernel(library, gil_library)


class PlanesKernel:
    """The library that was compiled from planes.cpp.

    Args:
        library: releases the GIL during a call.
        gil_library: the same library; keeps the GIL.
    """

    def __init__(self, library: ctypes.CDLL, gil_library: ctypes.CDLL) -> None:
        self._library = library
        self._gil_library = gil_library
        for each in (library, gil_library):
            for function in (each.to_planes, each.to_pixels):
                function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p]
            each.to_planes.restype, each.to_pixels.restype = None, ctypes.c_int32

    def to_planes(self, pixels: Tile, planes: NDArray[np.float32]) -> None:
        """Write pixels as `to_planes` of planes.py does.

        Raises:
            ValueError: the planes are not for these pixels.
        """
        height, width, channels = pixels.shape
        if planes.shape != (channels, height, width):
            raise ValueError(f"planes of shape {planes.shape} do not fit pixels of shape {pixels.shape}")
        pixels = np.ascontiguousarray(pixels, np.uint8)
        self._chosen(height * width).to_planes(reference(pixels), height * width, channels, reference(planes))

    def to_tile(self, planes: NDArray[Any], into: Tile | None) -> Tile | None:
        """Clamp planes to pixels as `to_tile` of planes.py does; where it returns None, `into` may be partly written.

        Raises:
            ValueError: the tile to write into has another shape.
        """
        *several, channels, height, width = planes.shape
        shape = (*several, height, width, channels)
        if into is not None and into.shape != shape:
            raise ValueError(f"a tile of shape {into.shape} does not fit planes of shape {planes.shape}")
        planes = np.ascontiguousarray(planes, np.float32)
        tile = into if into is not None and into.flags.c_contiguous else np.empty(shape, np.uint8)
        library, count = self._chosen(height * width), height * width
        pairs = zip(planes, tile, strict=True) if several else ((planes, tile),)
        for one, pixels in pairs:
            if not library.to_pixels(reference(one), count, channels, reference(pixels)):
                return None
        if into is None or tile is into:
            return tile
        np.copyto(into, tile)
        return into

    def _chosen(self, pixels: int) -> ctypes.CDLL:
        return self._gil_library if pixels <= _MAX_PIXELS_WITH_GIL else self._library
