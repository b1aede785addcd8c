"""A real disk that fails when a test says so, at what it says; and a small file system of its own, where root may."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from service.saving.local_disk.disk import Disk
from service.saving.local_disk.syncfs import Changes

WRITES = ("create", "append", "write", "write_soon")
SYNCS = ("sync", "sync_all")


class FailingDisk(Disk):
    """Counts what it was asked for; `fail` until `mend`."""

    def __init__(self) -> None:
        self._asked: list[tuple[str, int]] = []
        self._code = 0
        self._at: tuple[str, ...] = ()

    @property
    def asked(self) -> list[str]:
        """The names of the methods called, in this order."""
        return [what for what, _ in self._asked.copy()]

    @property
    def asked_here(self) -> list[str]:
        """The same by the thread that asks, without what saving threads call at any time."""
        return [what for what, thread in self._asked.copy() if thread == threading.get_ident()]

    def fail(self, code: int, at: tuple[str, ...]) -> None:
        """From now on, with that errno, at those of its methods."""
        self._code, self._at = code, at

    def mend(self) -> None:
        self._at = ()

    def create(self, path: Path) -> int:
        self._ask("create")
        return super().create(path)

    def append(self, descriptor: int, pieces: Sequence[bytes], at: int) -> None:
        self._ask("append")
        super().append(descriptor, pieces, at)

    def sync(self, descriptor: int) -> None:
        self._ask("sync")
        super().sync(descriptor)

    def write(self, path: Path, data: bytes) -> None:
        self._ask("write")
        super().write(path, data)

    def write_soon(self, path: Path | str, data: bytes) -> None:
        self._ask("write_soon")
        super().write_soon(path, data)

    def sync_all(self, changes: Changes) -> None:
        self._ask("sync_all")
        super().sync_all(changes)

    def rename(self, source: Path | str, target: Path | str) -> None:
        self._ask("rename")
        super().rename(source, target)

    def _ask(self, what: str) -> None:
        self._asked.append((what, threading.get_ident()))
        if what in self._at:
            raise OSError(self._code, os.strerror(self._code))


@contextmanager
def tmpfs(folder: Path, size: str) -> Iterator[Path]:
    """A file system of that size; the test is skipped where none can be mounted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def enlarge(folder: Path, size: str) -> None:
    """Make room in a file system of `tmpfs`."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes all room that is left."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for piece in (65_536, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(piece))
    return path
