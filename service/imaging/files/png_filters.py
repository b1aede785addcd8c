"""Undoes the filters of PNGs' scanlines by libspng, where it is installed (ADR 40). OpenCV does all others.

libspng takes a third of the time of OpenCV's libpng. It decides nothing about what is accepted: it gets what png.py has
inflated and checked.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.errors import InvalidImage
from service.core.pictures import Pixels
from service.imaging.files.header import Header

try:
    from pyspng import _pyspng_c
except ImportError:  # no wheel for this platform
    _pyspng_c = None

_CLEARED_BY = 64
"""Bytes of an array whose maximum numpy finds by AVX, after which it clears the upper halves of the vector registers:
isal leaves them in use, and libspng's SSE code then takes twice as long (2.2 ms for 512² in place of 1.1)."""
_IGNORE_ADLER32, _CRC_USE, _FORMAT_AS_STORED = 1, 2, 256
"""Values of spng.h: checksums were checked already; samples are wanted as stored, in this machine's order."""


@dataclass(frozen=True, slots=True)
class _Libspng:
    """Functions of libspng. All but `decode_image` take microseconds and keep the interpreter's lock."""

    new: Any
    free: Any
    set_crc_action: Any
    set_buffer: Any
    decode_image: Any


@cache
def _libspng() -> _Libspng | None:
    """Return the library inside pyspng, whose own function would hold the interpreter's lock; None without it."""
    if _pyspng_c is None:
        return None
    quick, slow = ctypes.PyDLL(_pyspng_c.__file__), ctypes.CDLL(_pyspng_c.__file__)
    try:
        found = _Libspng(
            quick.spng_ctx_new,
            quick.spng_ctx_free,
            quick.spng_set_crc_action,
            quick.spng_set_png_buffer,
            slow.spng_decode_image,
        )
    except AttributeError:  # built without exported names
        return None
    context, size = ctypes.c_void_p, ctypes.c_size_t
    found.new.argtypes, found.new.restype = [ctypes.c_int], context
    found.free.argtypes, found.free.restype = [context], None
    found.set_crc_action.argtypes = [context, ctypes.c_int, ctypes.c_int]
    found.set_buffer.argtypes = [context, ctypes.c_void_p, size]
    found.decode_image.argtypes = [context, ctypes.c_void_p, size, ctypes.c_int, ctypes.c_int]
    return found


def suits_libspng(header: Header, *, interlaced: bool) -> bool:
    """Whether libspng decodes a PNG: samples of whole bytes that are stored in order."""
    return header.bits >= 8 and header.colour != "palette" and not interlaced and _libspng() is not None


def decode_by_libspng(checked: NDArray[np.uint8], header: Header) -> Pixels:
    """Decode a PNG whose chunks, checksums and filter types are known to be right: H×W×C as stored.

    Raises:
        InvalidImage: libspng refuses it.
    """
    library = _libspng()
    assert library is not None  # noqa: S101 -- asked by `suits_libspng`
    channels = (1 if header.colour == "grey" else 3) + header.alpha
    pixels: Pixels = np.empty((*header.stored, channels), np.uint8 if header.bits == 8 else np.uint16)
    checked[:_CLEARED_BY].max()
    context = library.new(_IGNORE_ADLER32)
    try:
        refused = (
            library.set_crc_action(context, _CRC_USE, _CRC_USE)
            or library.set_buffer(context, checked.ctypes.data, checked.size)
            or library.decode_image(context, pixels.ctypes.data, pixels.nbytes, _FORMAT_AS_STORED, 0)
        )
    finally:
        library.free(context)
    if refused:
        raise InvalidImage("the PNG is corrupt")
    return pixels
