"""A disk whose operations a test can make fail, and small file systems, which root can mount."""

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
    """The real disk; it records its calls, and chosen methods fail between `fail` and `mend`."""

    def __init__(self) -> None:
        self._asked: list[tuple[str, int]] = []
        self._code = 0
        self._at: tuple[str, ...] = ()

    @property
    def asked(self) -> list[str]:
        """Names of the called methods, in order."""
        return [what for what, _ in self._asked.copy()]

    @property
    def asked_here(self) -> list[str]:
        """Names of the methods called by this thread, without those that saving threads call at any time."""
        return [what for what, thread in self._asked.copy() if thread == threading.get_ident()]

    def fail(self, code: int, at: tuple[str, ...]) -> None:
        """Make the methods `at` raise OSError with the errno `code` from now on."""
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
    """Mount a tmpfs of this size until the block ends; skips the test where that is not permitted."""
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
    """Change the size of a file system of `tmpfs`."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the file system with one file and return its path."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for piece in (65_536, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(piece))
    return path
