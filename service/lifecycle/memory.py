"""Memory that the C library keeps for the next picture, where it would give it back to the system and ask again.

Every fresh page costs a fault, 200 for each array of a 512² picture: half the time of pasting.
"""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""malloc.h; see mallopt(3)."""
_KEPT_BYTES = 128 << 20
"""At the end of the heap."""
_MAPPED_FROM_BYTES = 32 << 20
"""The most that glibc allows on 64 bits; larger arrays are mapped, and go back to the system at once."""


def keep_freed_memory() -> bool:
    """Tell glibc's allocator, for the whole process; False where there is another one. Twice is allowed."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES))
