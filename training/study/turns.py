"""Turns at a device: studies that run at once prepare their cells together, and are timed one at a time."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_POLL_S = 0.02
_SAID_EVERY_S = 10.0


class Turns:
    """A file whose lock says who uses the device, and whose text says who is alone; without a file nobody else does.

    The lock ends with its process, however that ends. A stopped process keeps it: those that wait say its name.
    """

    def __init__(self, path: Path | None, name: str = "", notify: Callable[[str], None] = lambda _line: None) -> None:
        self._path = path
        self._name = name
        self._notify = notify

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Use the device beside others that do so too, while nobody is timed."""
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Use the device alone."""
        with self._locked(fcntl.LOCK_EX) as file:
            _write_over(file, self._name)
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
                    _write_over(file, "")
                fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough: a forked child has the file too, and its lock

    def _wait_for_lock(self, file: IO[str], kind: int) -> None:
        """Poll for the lock, and say every ten seconds who has it."""
        began = time.monotonic()
        said = -_SAID_EVERY_S
        while not _lock(file, kind):
            waited = time.monotonic() - began
            if waited - said >= _SAID_EVERY_S and self._path is not None:
                said, holder = waited, self._path.read_text("utf-8")
                self._notify(f"waits for the device since {waited:.0f} s: {holder or 'others that compile'}")
            time.sleep(_POLL_S)


def _lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_over(file: IO[str] | None, text: str) -> None:
    if file is not None:
        file.truncate(0)
        file.write(text)
        file.flush()
