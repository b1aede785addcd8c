"""The shared libraries that are compiled from C++ when Retouch is installed, where there is a compiler.

They have nothing of Python in them, so compiling needs no headers of Python. ctypes.CDLL releases the interpreter's
lock while they run, ctypes.PyDLL keeps it. Each has a function `built_from`, which returns a digest of its source: what
was built from another one would be called wrongly, and is not used.
"""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

_log = structlog.get_logger(__name__)
HOW_TO_INSTALL = "install a C++ compiler (g++), then Retouch again"


def load_library(name: str, source: int, kind: type[ctypes.CDLL] = ctypes.CDLL) -> ctypes.CDLL | None:
    """Load a library; None where it was not compiled, or from another source, which is logged.

    Args:
        name: of its extension module in pyproject.toml.
        source: digest of the source that the caller was written for: CRC-32 of the file without the line that has it.
        kind: whether calls release the interpreter's lock.
    """
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    try:
        library = kind(spec.origin)
    except OSError:  # compiled on another system
        return None
    built_from = getattr(library, "built_from", None)
    if built_from is None or built_from() & 0xFFFFFFFF != source:
        why = "it was built from another version's source"
        _log.warning("compiled library is not used", library=spec.origin, reason=why, to_do=HOW_TO_INSTALL)
        return None
    return library


def address(array: NDArray[Any]) -> ctypes.c_void_p:
    """Return where the array's first item is.

    Raises:
        ValueError: the array is not contiguous.
    """
    if not array.flags.c_contiguous:
        raise ValueError("compiled code reads contiguous arrays only")
    return ctypes.c_void_p(array.ctypes.data)


def reference(array: NDArray[Any]) -> Any:
    """Return a reference to the array's first item, as an argument of a call.

    After a wait, with cold caches, it takes half as long as `address`: numpy's way there is longer.

    Raises:
        ValueError: the array is not contiguous.
    """
    items: Any = array
    try:
        return ctypes.byref(ctypes.c_char.from_buffer(items))
    except (TypeError, ValueError):  # it cannot be written to, has no items, or has gaps
        return address(array)


def address_of_rows(array: NDArray[Any]) -> tuple[ctypes.c_void_p, ctypes.c_ssize_t]:
    """Return where the array's first item is, and the bytes from one row to the next; the items of a row have no gaps.

    Raises:
        ValueError: the items of a row have gaps.
    """
    if not _has_whole_rows(array):
        raise ValueError("compiled code reads rows without gaps only")
    return ctypes.c_void_p(array.ctypes.data), ctypes.c_ssize_t(array.strides[0])


def with_whole_rows(array: Any) -> Any:
    """Return the array, or a copy if the items of its rows have gaps, as in a mask that is turned."""
    return array if _has_whole_rows(array) else np.ascontiguousarray(array)


def _has_whole_rows(array: NDArray[Any]) -> bool:
    return not array.size or array[0].flags.c_contiguous
