"""One sync for all changes in a file system, syncfs(2), and files written with few system calls.

Syncing thirty files one by one means thirty waits for the device; syncfs means one, but also waits for other programs'
writes there. From Linux 5.8 on it fails if a write has failed since the descriptor was opened. It is not used on other
systems, which do not report errors, nor on file systems that may do less at syncfs than at fsync, such as FUSE, which
does not even receive it.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_REPORTS_ERRORS_SINCE = (5, 8)
_RELIABLE_TYPES = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994, 0x794C7630})
"""Types of statfs(2): ext4, XFS, Btrfs, F2FS, tmpfs, overlayfs (which syncs the layer below, but may hide an error)."""
_STATFS_BYTES = 512
"""Size of the buffer for statfs(2), larger than any system needs; the type is the first field."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes in a file system since `descriptor` was opened."""

    descriptor: int

    def sync(self) -> None:
        """Wait until all changes are on the device.

        Raises:
            OSError: some changes are lost; it is not known which.
        """
        if _c_library().syncfs(self.descriptor):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


@cache
def _c_library() -> ctypes.CDLL:
    """The process's C library, kept because looking it up takes 12 µs."""
    return ctypes.CDLL(None, use_errno=True)


@contextmanager
def changes_of(folder: Path) -> Iterator[Changes]:
    """Open the file system of `folder`, to sync changes that are made from now on.

    Raises:
        OSError: there is no such folder.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield Changes(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path | str, pieces: Sequence[bytes]) -> None:
    """Write the pieces, one after the other, as a whole file, without a sync.

    Raises:
        OSError: the disk is full or failing; a part of the file may be left.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, pieces)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, pieces: Sequence[bytes], at: int = 0) -> None:
    """Write the pieces at offset `at` of an open file, usually in one system call.

    Raises:
        OSError: the disk is full or failing; a part may be written.
    """
    views = [memoryview(piece) for piece in pieces if piece]
    while views:
        written = os.pwritev(descriptor, views, at)
        at += written
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if views:
            views[0] = views[0][written:]


def file_system_type(folder: Path) -> int:
    """Return Linux's number for the type of the file system that holds `folder`; 0 if it is not known."""
    facts = ctypes.create_string_buffer(_STATFS_BYTES)
    if _c_library().statfs(os.fsencode(folder), facts):
        return 0
    return ctypes.c_ulong.from_buffer(facts).value & 0xFFFFFFFF


def syncfs_is_reliable(kind: int) -> bool:
    """Return whether syncfs on that type of file system is as durable as an fsync of each file."""
    return kind in _RELIABLE_TYPES


def syncfs_reports_errors(system: str, release: str) -> bool:
    """Return whether syncfs reports failed writes, on a system with that `uname -s` and `uname -r`."""
    number = re.match(r"(\d+)\.(\d+)", release)
    return system == "Linux" and number is not None and tuple(map(int, number.groups())) >= _REPORTS_ERRORS_SINCE
