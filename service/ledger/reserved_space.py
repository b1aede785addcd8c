"""Space on the ledger's disk that is kept for deletions, so that a full disk can be emptied through the API."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_BYTES = 96 * 2**10
"""Size of the file: a deletion writes some ten pages of 4 KiB to the log."""
_LOW_BYTES = 32 * 2**20
"""Free bytes below which the disk may be full a second later."""
_NEEDED_BYTES = 128 * 2**10
"""Free bytes from which the file is written. With less, the disk counts as full (saving/local_disk/disk_state.py), so
that neither the file nor the space that it gives up is taken for results."""


class ReservedSpace:
    """A file that takes up the space; all processes that share the ledger use the same file. Thread-safe.

    Args:
        path: path of the file, in the ledger's folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def is_held(self) -> bool:
        """Whether the space is reserved."""
        return self._path.exists()

    def is_disk_low(self) -> bool:
        """Return whether the disk may soon be full."""
        return not self.has_room(_LOW_BYTES)

    def has_room(self, size: int) -> bool:
        """Return whether the disk has that many free bytes, beside the reserve."""
        try:
            return _free_bytes(self._path.parent) >= size
        except OSError:
            return False

    def release(self) -> None:
        """Give up the space, if it is there."""
        with suppress(OSError):  # then the caller's transaction fails as without a reserve
            self._path.unlink(missing_ok=True)

    def restore(self) -> None:
        """Take the space, unless it is taken or the disk has too little; the next call tries again."""
        with suppress(OSError):
            if self.is_held or not self.has_room(_NEEDED_BYTES):
                return
            try:
                self._path.write_bytes(os.urandom(_BYTES))  # a file system may store zeros in no space
            except OSError:
                self.release()


def _free_bytes(folder: Path) -> float:
    """Return the free bytes that the file system reports; infinity if it reports none."""
    facts = os.statvfs(folder)
    blocks = facts.f_bfree if os.geteuid() == 0 else facts.f_bavail  # some blocks are reserved for root
    return float(blocks * facts.f_frsize) if facts.f_blocks else float("inf")
