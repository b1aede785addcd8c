"""Temporary directory that the processes of one server share, for Unix sockets and the files of prometheus_client.

It is removed when the server ends. Every process of a server inherits the lock of a file in it; the directory of a
killed server is removed at a later start, once that lock is free. The directory itself is locked as well, because
systemd-tmpfiles, which removes old temporary files, leaves locked directories alone (tmpfiles.d(5)).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import mark_process_dead

from service.core.settings import SettingsInvalid
from service.telemetry.metrics import combined_registry

_PREFIX = "retouch-run-"
_LOCK = "lock"
_BACKLOG = 256
_MAX_SOCKET_PATH = 107
"""Linux's limit for the path of a Unix socket, in bytes."""
_LONGEST_NAME = Path(f"{_PREFIX}12345678", "engine-63.sock")


class RunDirectory:
    """A temporary directory of one server, removed at the end of the block.

    Args:
        path: path of the directory.
        lock: descriptor of its lock file, on which the lock is held; every process inherits it.
        directory: descriptor of the directory, on which a lock is held.
    """

    def __init__(self, path: Path, lock: int, directory: int) -> None:
        self.path = path
        self.lock = lock
        self._directory = directory

    @classmethod
    def create(cls, parent: Path | None = None) -> RunDirectory:
        """Create a new directory, and remove the directories of servers that no longer run.

        Raises:
            SettingsInvalid: the path of the folder for temporary files is too long for the path of a socket.
        """
        parent = parent or Path(tempfile.gettempdir())
        longest = _MAX_SOCKET_PATH - len(os.fsencode(_LONGEST_NAME)) - 1
        if len(os.fsencode(parent)) > longest:
            raise SettingsInvalid(
                f"--workers keeps sockets in the folder for temporary files, whose name may have {longest} bytes; set "
                f"TMPDIR to a shorter one than {parent}"
            )
        for left in parent.glob(f"{_PREFIX}*"):
            _remove_if_unused(left)
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        unlocked = path / f".{_LOCK}"  # renamed once locked: a server that starts now must not remove it
        lock = os.open(unlocked, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        unlocked.rename(path / _LOCK)
        (path / "metrics").mkdir()
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(directory, fcntl.LOCK_SH)
        return cls(path, lock, directory)

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _remove(self.path)
        os.close(self.lock)
        os.close(self._directory)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for every process, which name the directory of prometheus_client."""
        return {"PROMETHEUS_MULTIPROC_DIR": str(self.path / "metrics")}

    def socket_paths(self, engines: int) -> list[Path]:
        """Return the paths of the engine processes' sockets, by index."""
        return [self.path / f"engine-{index}.sock" for index in range(engines)]

    def listen_for_engine(self, index: int) -> socket.socket:
        """Return an engine process's listening socket; it outlives the process, so clients wait for the replacement."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.socket_paths(index + 1)[index]))
        listener.listen(_BACKLOG)
        return listener

    def forget_metrics(self, pid: int) -> None:
        """Drop the gauges of a process that has ended; its counters stay in the sums."""
        mark_process_dead(pid, str(self.path / "metrics"))  # type: ignore[no-untyped-call]

    def combined_metrics(self) -> CollectorRegistry:
        """Return the combined metrics of all processes."""
        return combined_registry(str(self.path / "metrics"))


def _remove_if_unused(path: Path) -> None:
    with suppress(OSError):  # locked, another user's, or just removed
        lock = os.open(path / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        finally:
            os.close(lock)


def _remove(path: Path) -> None:
    """Remove a run directory, its lock last: a later start removes only directories that have one."""
    for left in tuple(path.glob("*")):  # which finds nothing if someone else has removed the directory
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        elif left.name != _LOCK:
            with suppress(OSError):
                left.unlink()
    shutil.rmtree(path, ignore_errors=True)
