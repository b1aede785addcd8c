"""Undoes the filters of small PNGs' scanlines by libspng, where it is installed (ADR 40). OpenCV does all others.

libspng takes a third of the time of OpenCV's libpng, but pyspng holds the interpreter's lock meanwhile, so it is for
small pictures only. It decides nothing about what is accepted: it gets what png.py has inflated and checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.errors import InvalidImage
from service.imaging.files.header import Header

try:
    import pyspng
except ImportError:  # no wheel for this platform
    pyspng = None

UNDER_LOCK_BYTES = 3 << 19
"""Most bytes of scanlines for which the lock is held: 2 ms; a 512² picture with alpha has 1 MiB."""
_CLEARED_BY = 64
"""Bytes of an array whose maximum numpy finds by AVX, after which it clears the upper halves of the vector registers:
isal leaves them in use, and libspng's SSE code then takes twice as long (2.2 ms for 512² in place of 1.1)."""
_FORMATS = {("grey", False): "L", ("rgb", False): "RGB", ("rgb", True): "RGBA"}
"""By colour and alpha; libspng does not write grey with alpha as it is stored."""


def suits_libspng(header: Header, nbytes: int, *, interlaced: bool) -> bool:
    """Whether libspng decodes a PNG with so many bytes of scanlines: small, 8 bits, in one of its formats."""
    plain = header.bits == 8 and (header.colour, header.alpha) in _FORMATS and not interlaced
    return pyspng is not None and plain and nbytes <= UNDER_LOCK_BYTES


def decode_by_libspng(checked: bytes, header: Header) -> NDArray[np.uint8]:
    """Decode a PNG whose chunks, checksums and filter types are known to be right: H×W×C as stored.

    Raises:
        InvalidImage: libspng refuses it.
    """
    np.frombuffer(checked, np.uint8, min(_CLEARED_BY, len(checked))).max()
    try:
        pixels: Any = pyspng.load(checked, _FORMATS[header.colour, header.alpha])
    except RuntimeError as error:
        raise InvalidImage("the PNG is corrupt") from error
    return np.asarray(pixels, np.uint8).reshape(*header.stored, -1)
