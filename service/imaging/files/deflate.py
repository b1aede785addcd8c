"""Compression and checksums of PNG data: by ISA-L if it is installed, otherwise by zlib (ADR 24)."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

try:
    from isal import isal_zlib
except ImportError:  # no wheel for this platform
    isal_zlib = None  # type: ignore[assignment,unused-ignore]

_INPUT_BYTES = 1 << 14
"""Bytes of compressed data given to an inflater at once, because it copies the part that it has not consumed."""
_OUTPUT_BYTES = 1 << 20
"""Bytes inflated at once, because larger pieces would be joined under the GIL (0.5 s for 400 MB)."""


@dataclass(frozen=True, slots=True)
class Deflate:
    """A library that reads and writes the zlib format (RFC 1950); its functions release the GIL."""

    name: str
    compress: Callable[[Any], bytes]
    """Compresses filtered scanlines, fast."""
    inflater: Callable[[], Any]
    """Makes an object like `zlib.decompressobj`'s; it may hold back output after it has consumed its input."""
    crc32: Callable[..., int]
    error: type[Exception]
    """Class of the errors that an inflater raises for invalid data."""


def by_zlib() -> Deflate:
    """Return the library that Python always has."""
    return Deflate("zlib", _compress_by_zlib, zlib.decompressobj, zlib.crc32, zlib.error)


def by_isal() -> Deflate:
    """Return ISA-L, which takes a quarter of zlib's time for a photograph."""
    error = cast("type[Exception]", isal_zlib.error)  # its stub says that it is an instance
    return Deflate("isal", _compress_by_isal, isal_zlib.decompressobj, isal_zlib.crc32, error)


def _compress_by_zlib(lines: Any) -> bytes:
    """Compress with run lengths only: a photograph gets 2 to 12 % larger than by Pillow, in a tenth of its time."""
    deflate = zlib.compressobj(1, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    return deflate.compress(lines) + deflate.flush()


def _compress_by_isal(lines: Any) -> bytes:
    packed: bytes = isal_zlib.compress(lines, 1)
    return packed


FASTEST = by_zlib() if isal_zlib is None else by_isal()
"""ISA-L if it is installed, else zlib."""


def inflate(packed: bytes, expected: int, by: Deflate) -> tuple[NDArray[np.uint8] | None, int]:
    """Inflate data of a known length, in pieces; never many bytes more than `expected`.

    Returns:
        The inflated data, or None if their length is not `expected`; and the number of packed bytes after their end.

    Raises:
        by.error: the data are invalid.
    """
    inflater = by.inflater()
    if expected <= _OUTPUT_BYTES:
        whole = inflater.decompress(packed, expected + 1)
        fits = len(whole) == expected and inflater.eof
        return (np.frombuffer(whole, np.uint8) if fits else None), len(inflater.unused_data)
    lines, at, view = np.empty(expected, np.uint8), 0, memoryview(packed)
    for start in range(0, len(packed), _INPUT_BYTES):
        chunk: bytes | memoryview = view[start : start + _INPUT_BYTES]
        full = True
        while (len(chunk) or full) and not inflater.eof:
            piece = inflater.decompress(chunk, _OUTPUT_BYTES)
            if at + len(piece) > expected:
                return None, 0
            lines[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
            chunk, full = inflater.unconsumed_tail, len(piece) == _OUTPUT_BYTES  # more output may follow a full piece
        if inflater.eof:
            not_read = len(packed) - min(len(packed), start + _INPUT_BYTES)
            return (lines if at == expected else None), len(inflater.unused_data) + not_read
    return None, 0
