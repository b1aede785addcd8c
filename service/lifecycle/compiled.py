"""Loading of the shared libraries that are compiled from C++ when Retouch is installed on a host with a compiler.

They do not use Python's C API, so compiling needs no Python headers. ctypes.CDLL releases the global interpreter lock
(GIL) while they run, ctypes.PyDLL keeps it. Each has a function `built_from`, which returns a digest of its source; a
library built from another version's source is not used, because its functions may have other arguments.
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
    """Load a library; None if it was not compiled, or was built from another source, which is logged.

    Args:
        name: name of its extension module in pyproject.toml.
        source: digest of the source that the caller expects: CRC-32 of the file without the line that has the digest.
        kind: `ctypes.CDLL` to release the GIL during calls, `ctypes.PyDLL` to keep it.
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
        reason = "it was built from another version's source"
        _log.warning("compiled library is not used", library=spec.origin, reason=reason, to_do=HOW_TO_INSTALL)
        return None
    return library


def address(array: NDArray[Any]) -> ctypes.c_void_p:
    """Return a pointer to the array's first item.

    Raises:
        ValueError: the array is not C-contiguous.
    """
    if not array.flags.c_contiguous:
        raise ValueError("compiled code reads contiguous arrays only")
    return ctypes.c_void_p(array.ctypes.data)


def reference(array: NDArray[Any]) -> Any:
    """Return a reference to the array's first item, as an argument of a call.

    With cold caches, as after a wait, it takes half as long as `address`, because NumPy's attributes are slower.

    Raises:
        ValueError: the array is not C-contiguous.
    """
    items: Any = array
    try:
        return ctypes.byref(ctypes.c_char.from_buffer(items))
    except (TypeError, ValueError):  # the array is read-only, empty or not contiguous
        return address(array)


def address_of_rows(array: NDArray[Any]) -> tuple[ctypes.c_void_p, ctypes.c_ssize_t]:
    """Return a pointer to the array's first item, and its stride from row to row in bytes.

    Raises:
        ValueError: the rows are not contiguous.
    """
    if not _has_whole_rows(array):
        raise ValueError("compiled code reads rows without gaps only")
    return ctypes.c_void_p(array.ctypes.data), ctypes.c_ssize_t(array.strides[0])


def with_whole_rows(array: Any) -> Any:
    """Return the array, or a copy if its rows are not contiguous, as in a rotated mask."""
    return array if _has_whole_rows(array) else np.ascontiguousarray(array)


def _has_whole_rows(array: NDArray[Any]) -> bool:
    return not array.size or array[0].flags.c_contiguous
