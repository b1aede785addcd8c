"""A lock on a device: concurrent studies prepare their cells together, and time their steps one after another."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_POLL_S = 0.02
_REPORT_INTERVAL_S = 10.0


class DeviceLock:
    """A readers-writer lock in a file, whose text names the exclusive holder. Without a file nothing is locked.

    The lock is released when its process ends, even if it is killed. A stopped process keeps it; waiting processes
    report its name.
    """

    def __init__(self, path: Path | None, name: str = "", notify: Callable[[str], None] = lambda _line: None) -> None:
        self._path = path
        self._name = name
        self._notify = notify

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Share the device: wait until no study uses it exclusively."""
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Use the device exclusively: wait until no other study uses it."""
        with self._locked(fcntl.LOCK_EX) as file:
            _overwrite(file, self._name)
            yield

    @contextmanager
    def _locked(self, kind: int) -> Iterator[IO[str] | None]:
        if self._path is None:
            yield None
            return
        with self._path.open("a") as file:
            self._wait_for_lock(file, kind)
            try:
                yield file
            finally:
                if kind == fcntl.LOCK_EX:
                    _overwrite(file, "")
                # closing is not enough: a forked child has inherited the file with its lock
                fcntl.flock(file, fcntl.LOCK_UN)

    def _wait_for_lock(self, file: IO[str], kind: int) -> None:
        """Poll for the lock, and report every ten seconds which cell has it."""
        started = time.monotonic()
        reported = -_REPORT_INTERVAL_S
        while not _lock(file, kind):
            waited = time.monotonic() - started
            if waited - reported >= _REPORT_INTERVAL_S and self._path is not None:
                reported, holder = waited, self._path.read_text("utf-8")
                self._notify(f"has waited {waited:.0f} s for the device, in use by {holder or 'studies that compile'}")
            time.sleep(_POLL_S)


def _lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _overwrite(file: IO[str] | None, text: str) -> None:
    if file is not None:
        file.truncate(0)
        file.write(text)
        file.flush()
