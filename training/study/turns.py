"""Turns at a device: studies that run at once prepare their cells together, and are timed one at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turns:
    """A file whose lock says who uses the device; without a file nobody else does.

    The lock ends with its process, however that ends.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Use the device beside others that do so too, while nobody is timed."""
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Use the device alone."""
        with self._locked(fcntl.LOCK_EX):
            yield

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        if self._path is None:
            yield
            return
        with self._path.open("a") as file:
            fcntl.flock(file, kind)
            yield
