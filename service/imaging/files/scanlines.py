"""Packs the rows of a photograph for a PNG in C++, in strips that several threads can work on (ADR 59).

It is an optional extension, compiled when Retouch is installed. The strips depend only on the picture, so the same
picture always gives the same file.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.pictures import Pixels
from service.imaging.files.deflate import Deflate
from service.imaging.pool.parallel_steps import DeferredStep
from service.lifecycle.compiled import address, load_library

Rows = NDArray[np.uint8]
_EXTENSION = f"{__package__}._scanlines"
"""Name of the extension module in pyproject.toml."""
_SOURCE = 0x43617B88
"""Digest of scanlines.cpp, by which a library of another version is rejected."""
_MIN_PICTURE_BYTES = 128 << 10
"""Least bytes of a picture that is packed here: a smaller one takes 0.4 ms with ISA-L."""
_MIN_STRIP_BYTES = 3 * 256 * 256
"""Least bytes of a strip, about 0.3 ms; smaller strips cost more for scheduling than they save."""
_MAX_STRIPS = 8
_MIN_SAMPLE_BYTES = 3 << 10
"""Least bytes of each sample that is packed both ways."""
_SAMPLE_COUNTS = (6, 32)
"""Fewest and most samples: one for each 256 KiB, at equal distances."""
_WORTHWHILE_RATIO = 0.95
"""Ratio of the packed sizes with and without a search for repetitions, below which it is worth twice the time."""
_QUICK_RATIO = 1 / 8
"""Ratio of packed to raw bytes below which a search for repetitions takes less time than codes of single bytes."""
_ADLER = 65_521
_FILTER_UP = 2


@cache
def installed_kernel() -> ScanlinesKernel | None:
    """Load the extension; None if Retouch was installed without it, or it is that of another version."""
    library = load_library(_EXTENSION, _SOURCE)
    return None if library is None else ScanlinesKernel(library)


class Strip(NamedTuple):
    """Some rows of a picture, as whole bytes of a deflate stream (RFC 1951)."""

    packed: memoryview
    adler: int
    """Adler-32 (RFC 1950) of the filtered rows."""
    size: int
    """Bytes of the filtered rows."""


class ScanlinesKernel:
    """The library that was compiled from scanlines.cpp."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.pack_rows.restype = library.estimate_rows.restype = ctypes.c_int64

    def estimate(self, rows: Rows, pixel_bytes: int, firsts: Sequence[int], together: int) -> int:
        """Estimate the packed size of some rows, in bytes.

        Args:
            rows: H × bytes of a row, all of the picture's.
            pixel_bytes: bytes from a pixel to the next.
            firsts: the first row of each sample.
            together: rows of a sample.

        Raises:
            MemoryError: memory for these rows cannot be allocated.
        """
        samples, size_of = len(firsts), ctypes.c_int64
        first_rows = (ctypes.c_int64 * samples)(*firsts)
        found = self._library.estimate_rows(
            address(rows), first_rows, size_of(samples), size_of(together), size_of(rows.shape[1]), pixel_bytes
        )
        return _checked(found, rows)

    def pack(self, rows: Rows, pixel_bytes: int, first: int, last: int) -> Strip:
        """Filter and pack the rows `first` to `last` (excluded).

        Args:
            rows: H × bytes of a row, all of the picture's.
            pixel_bytes: bytes from a pixel to the next.
            first: a row; the one above it is read, too.
            last: the stream ends with these rows if it is H.

        Raises:
            MemoryError: memory for a block of these rows cannot be allocated.
        """
        height, row_bytes = rows.shape
        size = (last - first) * (row_bytes + 1)
        max_bytes = size * 3 // 2 + (size >> 16) * 1024 + 2048  # a byte takes 12 bits at most; the tables
        buffer = np.empty(max_bytes, np.uint8)
        adler = ctypes.c_uint32()
        size_of = ctypes.c_int64
        written = self._library.pack_rows(
            address(rows),
            size_of(first),
            size_of(last),
            size_of(row_bytes),
            pixel_bytes,
            int(last == height),
            address(buffer),
            ctypes.byref(adler),
        )
        return Strip(buffer[: _checked(written, rows)].data, adler.value, size)


def _checked(found: int, rows: Rows) -> int:
    if found < 0:
        raise MemoryError("no memory to pack rows of {} × {} bytes".format(*rows.shape))
    return found


def png_strips(
    pixels: Pixels,
    kernel: ScanlinesKernel | None,
    by: Deflate,
    is_wanted: Callable[[range], bool] = lambda _: True,
) -> dict[range, DeferredStep[Strip]]:
    """Return the steps that pack a picture's strips, by their rows, from the top down; none if `by` is to pack it.

    Args:
        pixels: H×W×C.
        kernel: packs the rows; None if it is not installed.
        by: searches for repetitions; drawings, which are full of them, are left to it.
        is_wanted: says whether the strip of these rows is; if none is, no samples are packed, which take 0.1 ms.
    """
    if kernel is None or pixels.dtype != np.uint8 or pixels.size < _MIN_PICTURE_BYTES:
        return {}
    height, _, pixel_bytes = pixels.shape
    count = min(_MAX_STRIPS, pixels.size // _MIN_STRIP_BYTES, height) or 1
    edges = [height * number // count for number in range(count + 1)]
    wanted = [strip for strip in map(range, edges, edges[1:]) if is_wanted(strip)]
    rows = np.ascontiguousarray(pixels).view(np.uint8).reshape(height, -1)
    if not wanted or _has_repetitions(rows, pixel_bytes, kernel, by):
        return {}
    return {strip: DeferredStep(partial(kernel.pack, rows, pixel_bytes, strip.start, strip.stop)) for strip in wanted}


def _has_repetitions(rows: Rows, pixel_bytes: int, kernel: ScanlinesKernel, by: Deflate) -> bool:
    """Whether samples of the rows are clearly smaller with a search for repetitions."""
    height, row_bytes = rows.shape
    count = min(-(-_MIN_SAMPLE_BYTES // row_bytes), height)
    samples = min(max(_SAMPLE_COUNTS[0], rows.size >> 18), _SAMPLE_COUNTS[1])
    firsts = [(height - count) * (number + 1) // (samples + 1) for number in range(samples)]
    found = len(by.compress(filter_rows(rows, [range(first, first + count) for first in firsts])))
    packed = kernel.estimate(rows, pixel_bytes, firsts, count)
    return bool(found < max(packed * _WORTHWHILE_RATIO, row_bytes * count * samples * _QUICK_RATIO))


def filter_rows(rows: NDArray[np.uint8], ranges: Sequence[range]) -> memoryview:
    """Filter ranges of rows, all the same way, which leaves the time to the compression (deflate.py)."""
    filtered = np.empty((sum(map(len, ranges)), rows.shape[1] + 1), np.uint8)
    filtered[:, 0] = _FILTER_UP
    at = 0
    for block in ranges:
        target = filtered[at : at + len(block), 1:]
        if block.start == 0:
            target[0] = rows[0]
        above = max(block.start, 1)
        np.subtract(rows[above : block.stop], rows[above - 1 : block.stop - 1], out=target[above - block.start :])
        at += len(block)
    return filtered.reshape(-1).data


def join_adlers(first: int, second: int, size: int) -> int:
    """Return the Adler-32 (RFC 1950) of two pieces one after the other.

    Args:
        first: Adler-32 of the first piece.
        second: Adler-32 of the second piece.
        size: bytes of the second piece.
    """
    before = (first & 0xFFFF) - 1
    low = (before + (second & 0xFFFF)) % _ADLER
    high = ((first >> 16) + (second >> 16) + size * before) % _ADLER
    return high << 16 | low
