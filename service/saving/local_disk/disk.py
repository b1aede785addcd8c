"""The effects on the disk that saving has; a test hands in one that records them, or fails as a disk does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from service.saving.local_disk.syncfs import Changes, write_all, write_file


class Disk:
    """A real one. All methods block, and raise OSError where the disk does not do what it is asked for."""

    def create(self, path: Path) -> int:
        """A descriptor of a new file, to read and to write."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def append(self, descriptor: int, pieces: Sequence[bytes], at: int) -> None:
        """Write these pieces to that place of an open file, and wait for nothing; of a failure a part may be left."""
        write_all(descriptor, pieces, at)

    def sync(self, descriptor: int) -> None:
        """Wait until the file's bytes are on the device. After a failure, trust nothing that was written to it before.

        Linux tells of a lost write once and calls the pages clean then: the next sync would succeed.
        """
        os.fsync(descriptor)

    def write(self, path: Path, data: bytes) -> None:
        """Write a whole file and wait until its bytes are on the device."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            self.sync(file.fileno())

    def write_soon(self, path: Path, data: bytes) -> None:
        """Write a whole file and wait for nothing."""
        write_file(path, [data])

    def sync_all(self, changes: Changes) -> None:
        """Wait until all that changed in the file system is on the device."""
        changes.sync()

    def rename(self, source: Path, target: Path) -> None:
        """Move a file over `target`, atomically."""
        source.replace(target)

    def sync_directory(self, path: Path) -> None:
        """Wait until the directory's entries are on the device."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)
