"""Holes in files, fallocate(2): ranges that read as zeros and take no space on the disk."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02


def free_range(descriptor: int, at: int, size: int) -> bool:
    """Turn `size` bytes at offset `at` of an open file into zeros, and free the blocks that lie within them.

    Returns whether that worked; if not, as on file systems without holes, the file may be unchanged.
    """
    fallocate = _fallocate()
    return fallocate is not None and size > 0 and fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, at, size) == 0


@cache
def _fallocate() -> Any:
    """The C library's function; None on systems without it."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_long) < ctypes.sizeof(ctypes.c_int64):
        return None  # a 32-bit system's function has other arguments
    found = ctypes.CDLL(None).fallocate
    found.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return found
