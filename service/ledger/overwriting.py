"""Detection of an SQLite file that is overwritten in place while in use, as by `cp backup ledger`.

SQLite does not detect it: the inode is the same, and pages in the write-ahead log hide the copied ones. Therefore every
writer raises the `user_version` in the file's header, which checkpoints copy into the file itself. If the version there
has fallen, an older file was copied over it. A copy made since the last checkpoint does no harm, because the log has
all pages that differ.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

_RAISE_INTERVAL_S = 1.0
_RECHECK_S = 0.05
"""Pause before a file counts as overwritten: a checkpoint may be writing its header."""


class OverwriteWatch:
    """The version of the file at a path, for all connections that use it. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file = self._seen = (0, 0)
        self._users = self._highest = 0
        self._raised_at = 0.0
        self._overwritten = False

    def begin(self) -> None:
        """Begin to watch the file at the path, for one connection. Raises OSError or sqlite3.Error."""
        found = self._path.stat()
        with self._lock:
            if self._file != (found.st_dev, found.st_ino):
                self._overwritten, self._raised_at = False, 0.0
                self._seen, self._highest = self._last_change(), self._version()
                self._file = found.st_dev, found.st_ino
            self._users += 1

    def leave(self) -> None:
        """Undo `begin` for one connection. The last one ends the watch, as another file may get the same inode."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._file = (0, 0)

    def raise_version(self, writing: sqlite3.Connection) -> None:
        """Raise the version, in a writing transaction, at most once a second."""
        now = time.monotonic()
        if now >= self._raised_at + _RAISE_INTERVAL_S:
            (version,) = writing.execute("PRAGMA user_version").fetchone()
            writing.execute(f"PRAGMA user_version={version + 1}")
            self._raised_at = now

    def is_overwritten(self) -> bool:
        """Return whether an older file has overwritten it. Raises OSError or sqlite3.Error if it cannot be read."""
        with self._lock:
            seen = self._last_change()
            if seen != self._seen:
                version = self._version()
                if version < self._highest:
                    time.sleep(_RECHECK_S)
                    version = self._version()
                self._overwritten = version < self._highest
                self._seen, self._highest = seen, max(self._highest, version)
            return self._overwritten

    def _last_change(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_mtime_ns, found.st_size

    def _version(self) -> int:
        """Return the version in the file itself, without its log.

        SQLite reads it, because opening and closing the file in any other way would release SQLite's locks. A
        checkpoint writes the header first, so for a moment the file is shorter than its header says; SQLite accepts
        such a file only with `writable_schema`.
        """
        address = f"{self._path.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(address, uri=True)) as reading:
                reading.execute("PRAGMA writable_schema=ON")
                version: int = reading.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # the copied file is not a database
            return -1
        return version
