"""Spool folders of the processes that share a results folder: one for each process, locked while it lives.

A process holds a lock (flock) on a file in its folder `.spool/ID`. The kernel releases the lock when the process ends,
for whatever reason, so others can detect a dead process without guessing from ages or process ids. This works on one
host, not on network file systems.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.saving.local_disk.disk_state import SPOOL_PROBE

SPOOL = ".spool"
_LOCK = "lock"


class SpoolOwner:
    """This process as owner of a spool folder under `root`. Thread-safe; all methods block on the disk."""

    def __init__(self, root: Path, new_id: Callable[[], str]) -> None:
        self.id = new_id()
        self.root = root
        self._all = root / SPOOL
        self.folder = self._all / self.id
        self._lock: int | None = None
        self._making = threading.Lock()

    def create(self) -> None:
        """Create and lock the folder. It gets its final name only once it is locked, so that it never looks abandoned.

        Raises:
            OSError: the folder cannot be created.
        """
        self._all.mkdir(parents=True, exist_ok=True)
        with _lock_of_makers(self._all, fcntl.LOCK_SH):
            unlocked_folder = self._all / f".{self.id}"
            unlocked_folder.mkdir(exist_ok=True)  # may be left from an attempt that failed
            lock = os.open(unlocked_folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                unlocked_folder.rename(self.folder)
            except OSError:
                os.close(lock)
                raise
        self._lock = lock

    def recreate(self) -> None:
        """Create and lock the folder again if it was removed or moved; if a copy is in its place, lock the copy.

        Raises:
            OSError: the folder cannot be created.
        """
        with self._making:
            if self._is_locked():
                return
            gone, self._lock = self._lock, None
            if gone is not None:
                os.close(gone)
            if self.folder.exists():
                self._lock = os.open(self.folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            else:
                self.create()

    def _is_locked(self) -> bool:
        """Return whether this process holds the lock of the file at the folder's path, which others check."""
        try:
            return self._lock is not None and os.path.samestat((self.folder / _LOCK).stat(), os.fstat(self._lock))
        except FileNotFoundError:
            return False

    def unlock_folder(self) -> None:
        """Unlock the folder, and remove it if it is empty. May be called twice."""
        if self._lock is not None:
            _remove_if_empty(self.folder)
            os.close(self._lock)
            self._lock = None

    def folders(self) -> list[Path]:
        """Return the folders of all processes, including dead ones; this process's folder is the first."""
        try:
            entries = [entry for entry in os.scandir(self._all) if entry.is_dir() and not entry.name.startswith(".")]
            names = sorted(entry.name for entry in entries)
        except FileNotFoundError:
            names = []
        return [self.folder, *(self._all / name for name in names if name != self.id)]

    def sweep(self) -> None:
        """Remove unfinished folders of processes killed in `create`; does nothing while any process is in it."""
        with suppress(OSError):
            entries = [entry for entry in os.scandir(self._all) if entry.name.startswith(".")]
            if unnamed := [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]:
                with _lock_of_makers(self._all, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    for folder in unnamed:
                        _remove_if_empty(folder)

    def is_alive(self, owner_id: str) -> bool:
        """Return whether the process with that owner id still runs; True for another user's, which cannot be checked.

        Raises:
            OSError: its lock cannot be checked, for example because no file descriptor is left.
        """
        if owner_id == self.id:
            return True
        try:
            with _try_to_lock(self._all / owner_id, fcntl.LOCK_SH) as free:
                return free is False
        except PermissionError:
            return True

    @contextmanager
    def inherit(self, folder: Path) -> Iterator[bool]:
        """Lock a dead process's folder during the block; yields False if it lives, or another process has the lock."""
        with _try_to_lock(folder, fcntl.LOCK_EX, os.O_CREAT) as free:  # without a lock file, no process holds the lock
            yield bool(free)
            if free:
                _remove_if_empty(folder)


@contextmanager
def _lock_of_makers(spool: Path, mode: int) -> Iterator[None]:
    """Lock the spool: shared to create folders, exclusively to sweep. Raises OSError if others hold the lock."""
    descriptor = os.open(spool, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, mode)
        try:
            yield
        finally:  # closing would not release the lock while a child forked meanwhile has the descriptor, too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


@contextmanager
def _try_to_lock(folder: Path, mode: int, missing: int = 0) -> Iterator[bool | None]:
    """Try to lock a folder; yields True if it is locked now, False if another process holds it, None if missing."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | missing)
    except FileNotFoundError:
        yield None
        return
    try:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True if os.fstat(descriptor).st_nlink else None
    finally:
        os.close(descriptor)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        if {entry.name for entry in os.scandir(folder)} <= {SPOOL_PROBE, _LOCK}:
            (folder / SPOOL_PROBE).unlink(missing_ok=True)  # left by a process that was killed
            (folder / _LOCK).unlink(missing_ok=True)
            folder.rmdir()
