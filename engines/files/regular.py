"""Reads files that other users or programs wrote, without blocking: regular files only, and of limited size.

Opening a FIFO without a writer blocks, a socket or a device may block, and some files have no end. Links are followed.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; neither opening nor reading it blocks.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Read a whole regular file.

    Raises:
        OSError: as for `open_regular`; or the file has more than `max_bytes` bytes (none is read then), or grows while
            it is read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {max_bytes} bytes", str(path))
        content = file.read(size + 1)
    if len(content) > size:  # it is being written to, or is a kernel file that reports no size and may not end
        raise OSError(errno.EAGAIN, "it grows while it is read", str(path))
    return content


def remedy_for(error: OSError, otherwise: str) -> str:
    """Return advice for a file that cannot be read: `otherwise`, unless its permissions are at fault."""
    return "let this user read it" if isinstance(error, PermissionError) else otherwise


def irregular_entries(directory: Path) -> list[str]:
    """Return the sorted names of entries that are neither regular files nor directories.

    Raises:
        OSError: the directory cannot be read.
    """
    return sorted(entry.name for entry in directory.iterdir() if _is_irregular(entry))


def _is_irregular(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:  # it vanished, or is a broken link: opening it cannot block
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
