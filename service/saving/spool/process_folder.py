"""The processes that share a results folder: a folder each for what only one of them works on, and who has died.

An owner holds a lock (flock) on a file in its folder `.spool/ID` for as long as its process lives: the kernel lets go
of it however the process ends, so that nobody has to guess from ages or process ids. For one host: not for network file
systems.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SPOOL = ".spool"
_LOCK = "lock"


class Owner:
    """This process among those that share `root`. Thread-safe; all methods block on the disk."""

    def __init__(self, root: Path, new_id: Callable[[], str]) -> None:
        self.id = new_id()
        self.root = root
        self._all = root / SPOOL
        self.folder = self._all / self.id
        self._lock: int | None = None
        self._making = threading.Lock()

    def enter(self) -> None:
        """Make the folder and lock it. Until it is locked it has another name, under which nobody takes it for dead.

        Raises:
            OSError: the folder cannot be made.
        """
        unborn = self._all / f".{self.id}"
        unborn.mkdir(parents=True)
        self._lock = os.open(unborn / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unborn.rename(self.folder)

    def enter_again(self) -> None:
        """Make the folder anew where somebody has removed it; does nothing where it is there.

        Raises:
            OSError: the folder cannot be made.
        """
        with self._making:
            if self.folder.exists():
                return
            gone, self._lock = self._lock, None
            if gone is not None:
                os.close(gone)
            self.enter()

    def leave(self) -> None:
        """Unlock the folder, and remove it where nothing is left in it. Calling it twice is allowed."""
        if self._lock is not None:
            _remove_if_empty(self.folder)
            os.close(self._lock)
            self._lock = None

    def folders(self) -> list[Path]:
        """Of all owners, dead ones included; this one's own is the first."""
        try:
            names = sorted(entry.name for entry in os.scandir(self._all) if not entry.name.startswith("."))
        except FileNotFoundError:
            names = []
        return [self.folder, *(self._all / name for name in names if name != self.id)]

    def lives(self, owner_id: str) -> bool:
        """Whether the process of that owner still runs."""
        if owner_id == self.id:
            return True
        with _locked(self._all / owner_id, fcntl.LOCK_SH) as free:
            return free is False

    @contextmanager
    def inherit(self, folder: Path) -> Iterator[bool]:
        """Hold the folder of a dead owner while it is emptied; False where the owner lives or another one is at it."""
        with _locked(folder, fcntl.LOCK_EX) as free:
            yield bool(free)
            if free:
                _remove_if_empty(folder)


@contextmanager
def _locked(folder: Path, mode: int) -> Iterator[bool | None]:
    """True: nobody held it, and it is held now; False: somebody holds it; None: there is no such folder."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
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
        if [entry.name for entry in os.scandir(folder)] == [_LOCK]:
            (folder / _LOCK).unlink()
            folder.rmdir()
