"""Files that somebody else puts there, read without waiting: regular ones alone, and no more than is expected.

A FIFO that nobody writes to blocks whoever opens it, a socket or a device may, and an endless file ends no reader. A
link counts as what it leads to.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """The file, opened for reading; neither opening nor reading it waits for anybody.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The whole content of a file.

    Raises:
        OSError: as `open_regular`; or it has more than `most_bytes`, of which none is read, or grows meanwhile.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes", str(path))
        content = file.read(size + 1)
    if len(content) > size:  # written to just now; or one of the kernel's, which tell no size and may not end
        raise OSError(errno.EAGAIN, "it grows while it is read", str(path))
    return content


def odd_entries(directory: Path) -> list[str]:
    """The names in a directory, in order, that lead to something else than a regular file or a directory.

    Raises:
        OSError: the directory cannot be read.
    """
    return sorted(entry.name for entry in directory.iterdir() if _is_odd(entry))


def _is_odd(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:  # it vanished, or is a link to nowhere: nobody can wait for it
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
