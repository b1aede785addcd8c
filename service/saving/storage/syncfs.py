"""One sync of a whole file system, syncfs(2), instead of one for each file; and writing files with few calls.

Thirty files that are synced one by one wait for the device thirty times. syncfs also waits for the writes of others.
Since Linux 5.8 it reports writes that failed after the descriptor was opened; older systems do not, so it is not used
there. Nor is it used on file systems that are not known to do the same in syncfs as in fsync, such as FUSE.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_REPORTS_ERRORS_SINCE = (5, 8)
_RELIABLE_TYPES = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994, 0x794C7630})
"""Types of statfs(2): ext4, XFS, Btrfs, F2FS, tmpfs, overlayfs (which syncs the layer below, but may hide an error)."""
_STATFS_BYTES = 512
"""Buffer for statfs(2), larger than any system needs; the type comes first."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a file system since `descriptor` was opened."""

    descriptor: int

    def sync(self) -> None:
        """Wait until all changes are on the device.

        Raises:
            OSError: some are lost; it is unknown of which file.
        """
        if ctypes.CDLL(None, use_errno=True).syncfs(self.descriptor):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


@contextmanager
def changes_of(folder: Path) -> Iterator[Changes]:
    """Open the file system of `folder`, to sync the changes from now on.

    Raises:
        OSError: there is no such folder.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield Changes(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, pieces: Sequence[bytes]) -> None:
    """Write a whole file from pieces, without a sync.

    Raises:
        OSError: the disk is full or failing; a part of the file may be there.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, pieces)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, pieces: Sequence[bytes], at: int = 0) -> None:
    """Write pieces at an offset of an open file, usually in one call.

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
    """Linux's number for the type of `folder`'s file system, from statfs(2); 0 if it is unknown."""
    facts = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None).statfs(os.fsencode(folder), facts):
        return 0
    return ctypes.c_ulong.from_buffer(facts).value & 0xFFFFFFFF


def syncfs_is_reliable(kind: int) -> bool:
    """Whether a syncfs of that type of file system is equivalent to an fsync of each file."""
    return kind in _RELIABLE_TYPES


def syncfs_reports_errors(system: str, release: str) -> bool:
    """Whether syncfs reports failed writes on a system with this `uname -s` and `uname -r`."""
    number = re.match(r"(\d+)\.(\d+)", release)
    return system == "Linux" and number is not None and tuple(map(int, number.groups())) >= _REPORTS_ERRORS_SINCE
