"""Folders on failing disks: real ones where this machine can mount them, else simulated by a preloaded library."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

Opened = Callable[[Path], AbstractContextManager["FailingFolder"]]


@dataclass(slots=True)
class FailingFolder:
    """A folder for results, with functions that make its disk fail and work again.

    begin, end: begin and end the fault while the server runs.
    renew: repairs the disk before the next start, as an operator would, while no process has a file on it open.
    mends_live: whether `end` repairs the disk under a running server.
    """

    folder: Path
    begin: Callable[[], None]
    end: Callable[[], None]
    renew: Callable[[], None] = lambda: None
    mends_live: bool = True
    environ: dict[str, str] | None = None


def fill(path: Path) -> None:
    """Fill the rest of the disk."""
    with path.open("wb", buffering=0) as file:
        for piece in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(piece))


def mounted(folder: Path, *options: str) -> AbstractContextManager[object]:
    """Mount a file system and unmount it at the end; raises CalledProcessError if this machine does not allow it."""
    folder.mkdir(parents=True, exist_ok=True)
    _run("mount", *options, str(folder))
    stack = ExitStack()
    stack.callback(lambda: subprocess.run(["umount", "-l", str(folder)], check=False))
    return stack


@contextlib.contextmanager
def full(folder: Path) -> Iterator[FailingFolder]:
    """Make a tmpfs of 24 MB that another program fills."""
    with mounted(folder / "disk", "-t", "tmpfs", "-o", "size=24m", "tmpfs"):
        filler = folder / "disk" / "filler"
        yield FailingFolder(folder / "disk" / "results", lambda: fill(filler), lambda: filler.unlink(missing_ok=True))


@contextlib.contextmanager
def small(folder: Path) -> Iterator[FailingFolder]:
    """Make a tmpfs of 3 MB, which the results fill; it is then enlarged."""
    with mounted(folder / "disk", "-t", "tmpfs", "-o", "size=3m", "tmpfs"):
        larger = ("mount", "-o", "remount,size=24m", str(folder / "disk"))
        yield FailingFolder(folder / "disk" / "results", lambda: None, lambda: _run(*larger))


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[FailingFolder]:
    """Make an ext4 that turned read-only after an error; it is checked and mounted again for the next start."""
    with _ext4(folder, 64, "remount-ro") as disk:
        trigger = Path("/sys/fs/ext4", _device(disk).name, "trigger_fs_error")

        def repair() -> None:
            _unmount(disk)
            subprocess.run(["e2fsck", "-fy", str(folder / "image" / "disk")], capture_output=True, check=False)
            _run("mount", "-o", "loop,errors=remount-ro", str(folder / "image" / "disk"), str(disk))

        yield FailingFolder(
            disk / "results", lambda: _put(trigger, "on purpose"), lambda: None, repair, mends_live=False
        )


@contextlib.contextmanager
def device(folder: Path) -> Iterator[FailingFolder]:
    """Make an ext4 on a device that fails writes: writes to the page cache succeed, and each fsync fails once."""
    with _ext4(folder, 48, "continue") as disk:
        filler = folder / "image" / "filler"
        yield FailingFolder(disk / "results", lambda: fill(filler), lambda: filler.unlink(missing_ok=True))


def preloaded(word: str) -> Opened:
    """Make system calls fail as disk_fault.c defines for `quota`, `readonly` or `sync`."""

    @contextlib.contextmanager
    def opened(folder: Path) -> Iterator[FailingFolder]:
        library, control = folder / "disk_fault.so", folder / "disk_fault"
        source = Path(__file__).with_name("disk_fault.c")
        folder.mkdir(parents=True, exist_ok=True)
        _run("cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl")
        results = folder / "results"
        environ = {"LD_PRELOAD": str(library), "DISK_FAULT_FILE": str(control), "DISK_FAULT_UNDER": str(results)}
        yield FailingFolder(
            results, lambda: _put(control, word), lambda: control.unlink(missing_ok=True), environ=environ
        )

    return opened


@contextlib.contextmanager
def _ext4(folder: Path, megabytes: int, on_error: str) -> Iterator[Path]:
    """Make an ext4 of 100 MB, without a journal, in a file."""
    with mounted(folder / "image", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs"):
        image = folder / "image" / "disk"
        with image.open("wb") as file:
            file.truncate(100 * 2**20)
        _run("mkfs.ext4", "-q", "-O", "^has_journal", str(image))
        with mounted(folder / "disk", "-o", f"loop,errors={on_error}", str(image)):
            yield folder / "disk"


def _unmount(folder: Path) -> None:
    """Unmount once the killed processes have released it."""
    for _ in range(100):
        if subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.1)
    _run("umount", str(folder))


def _device(folder: Path) -> Path:
    found = subprocess.run(["findmnt", "-n", "-o", "SOURCE", str(folder)], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


def _put(path: Path, word: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, word.encode())
    os.close(descriptor)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


KINDS: dict[str, Opened] = {
    "full (tmpfs, filled by another)": full,
    "full (tmpfs of 3 MB, filled by results)": small,
    "read-only (ext4 after an error)": read_only,
    "failing device (ext4, fsync fails)": device,
    "quota (preloaded, EDQUOT)": preloaded("quota"),
    "read-only (preloaded, EROFS)": preloaded("readonly"),
    "failing fsync (preloaded, EIO)": preloaded("sync"),
}
