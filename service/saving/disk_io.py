"""All disk operations of saving, in one class that tests replace by one that records calls or fails."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from service.saving.storage.syncfs import Changes, write_all, write_file


class Disk:
    """Operations on a real disk. All methods block, and raise OSError if the disk is full or failing."""

    def create(self, path: Path) -> int:
        """Create a file, and return its descriptor for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def append(self, descriptor: int, pieces: Sequence[bytes], at: int) -> None:
        """Write pieces at an offset of an open file, without a sync; a failure may leave a part."""
        write_all(descriptor, pieces, at)

    def sync(self, descriptor: int) -> None:
        """Wait until the file's bytes are on the device. After a failure, anything written to it may be lost.

        Linux reports a lost write only once and marks the pages clean, so the next sync would succeed.
        """
        os.fsync(descriptor)

    def write(self, path: Path, data: bytes) -> None:
        """Write a whole file and wait until its bytes are on the device."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            self.sync(file.fileno())

    def write_soon(self, path: Path, data: bytes) -> None:
        """Write a whole file without a sync."""
        write_file(path, [data])

    def sync_all(self, changes: Changes) -> None:
        """Wait until all changes in the file system are on the device."""
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
