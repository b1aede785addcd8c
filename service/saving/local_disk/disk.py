"""The operations on a local disk; tests replace them with operations that record calls or fail."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from service.saving.local_disk.syncfs import Changes, write_all, write_file


class Disk:
    """A real disk. All methods block; they raise OSError when an operation fails."""

    def create(self, path: Path) -> int:
        """Create a file and return its descriptor, open for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def append(self, descriptor: int, pieces: Sequence[bytes], at: int) -> None:
        """Write the pieces at offset `at`, without a sync. After a failure a part may have been written."""
        write_all(descriptor, pieces, at)

    def sync(self, descriptor: int) -> None:
        """Wait until the file's bytes are on the device. After a failure, earlier writes to the file may be lost.

        Linux reports a lost write only once and marks the pages as clean, so the next sync succeeds.
        """
        os.fsync(descriptor)

    def write(self, path: Path, data: bytes) -> None:
        """Write a whole file and wait until its bytes are on the device."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            self.sync(file.fileno())

    def write_soon(self, path: Path | str, data: bytes) -> None:
        """Write a whole file without a sync."""
        write_file(path, [data])

    def sync_all(self, changes: Changes) -> None:
        """Wait until all changes in the file system are on the device."""
        changes.sync()

    def rename(self, source: Path | str, target: Path | str) -> None:
        """Move a file over `target`, atomically."""
        os.replace(source, target)  # noqa: PTH105 -- a Path costs as much as the system call

    def sync_directory(self, path: Path) -> None:
        """Wait until the directory's entries are on the device."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)
