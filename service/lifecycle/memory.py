"""Makes the C library keep freed memory for the next picture, instead of returning it to the system.

Each new page costs a page fault, 200 for each array of a 512² picture, which took half the time of pasting.
"""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameter numbers of malloc.h; see mallopt(3)."""
_KEPT_BYTES = 128 << 20
"""Free memory to keep at the end of the heap."""
_MAPPED_FROM_BYTES = 32 << 20
"""Size from which on arrays are mapped and returned to the system when freed; the most that glibc allows on 64 bits."""


def keep_freed_memory() -> bool:
    """Configure glibc's allocator for the whole process; False with another C library. May be called twice."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES))
