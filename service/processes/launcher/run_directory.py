"""Temporary directory that the processes of one server share, for Unix sockets and the files of prometheus_client.

It is removed when the server ends. Every process of a server inherits the lock of a file in it; the directory of a
killed server is removed at a later start, once that lock is free. The directory itself is locked as well, because
systemd-tmpfiles, which removes old temporary files, leaves locked directories alone (tmpfiles.d(5)).

If another program removes it nevertheless, it is made again, and each process stores its metrics there again. Until
then a file says that metrics are missing, also if the program removed only some of their files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import mark_process_dead

from service.telemetry.metric_files import INCOMPLETE
from service.telemetry.metrics import combined_registry

_log = structlog.get_logger(__name__)
_PREFIX = "retouch-run-"
_LOCK = "lock"
_BACKLOG = 256


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
        self._metrics = path / "metrics"
        self._sockets: list[int] = []
        self._files: set[str] = set()
        """Names of the metric files on which the sums of all processes depend."""

    @classmethod
    def create(cls, parent: Path | None = None) -> RunDirectory:
        """Create a new directory, and remove the directories of servers that no longer run."""
        parent = parent or Path(tempfile.gettempdir())
        for left in parent.glob(f"{_PREFIX}*"):
            _remove_if_unused(left)
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        lock, directory = _lock(path)
        (path / "metrics").mkdir()
        return cls(path, lock, directory)

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _remove(self.path)
        for descriptor in (self.lock, self._directory, *self._sockets):
            os.close(descriptor)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for every process, which name the directory of prometheus_client."""
        return {"PROMETHEUS_MULTIPROC_DIR": str(self._metrics)}

    @property
    def inherited(self) -> tuple[int, ...]:
        """Descriptors that every process inherits: the lock, and the sockets of `socket_paths`."""
        return self.lock, *self._sockets

    @property
    def socket_paths(self) -> list[str]:
        """Paths of the engine processes' sockets, in the order in which they were made.

        They lead through the descriptors in `inherited`, so they can be connected to if the directory was removed.
        """
        return [_path_of(descriptor) for descriptor in self._sockets]

    def listen_for_engine(self, index: int) -> socket.socket:
        """Return an engine process's listening socket; it outlives the process, so clients wait for the replacement."""
        listener, name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), f"engine-{index}.sock"
        listener.bind(f"{_path_of(self._directory)}/{name}")  # Linux limits a socket's path to 107 bytes
        listener.listen(_BACKLOG)
        self._sockets.append(os.open(name, os.O_PATH, dir_fd=self._directory))
        return listener

    def forget_metrics(self, pid: int) -> None:
        """Drop the gauges of a process that has ended; its counters stay in the sums."""
        mark_process_dead(pid, str(self._metrics))  # type: ignore[no-untyped-call]
        self._files -= {name for name in self._files if name.startswith("gauge_live") and name.endswith(f"_{pid}.db")}

    def make_again(self) -> None:
        """Make the directory again if another program has removed it; call it several times a second.

        The metrics stay incomplete until all their files are back; those of processes that have ended never are.
        """
        try:
            names = set(os.listdir(self._metrics))  # noqa: PTH208 -- called often
        except FileNotFoundError:
            with suppress(OSError):  # such as a full disk
                self._make_again()
            return
        except OSError:
            return
        with suppress(OSError):  # such as a full disk
            self._compare_files(names)

    def _compare_files(self, names: set[str]) -> None:
        # asked once more, because a listing may miss a file that is replaced just now
        missing = sorted(name for name in self._files - names if not (self._metrics / name).exists())
        if INCOMPLETE in names and not missing:
            (self._metrics / INCOMPLETE).unlink()
            _log.info("the metrics are complete again", folder=str(self._metrics))
        elif INCOMPLETE not in names and missing:
            (self._metrics / INCOMPLETE).touch()
            _log.warning("another program removed files of metrics", folder=str(self._metrics), files=missing)
        elif not missing:
            self._files |= {name for name in names if name.endswith(".db")}

    def _make_again(self) -> None:
        """Make it again, unless another user has put something in its place.

        Raises:
            OSError: that is not possible now.
        """
        with suppress(FileExistsError):  # only what is in it was removed
            self.path.mkdir(0o700)
        found = self.path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        if not (self.path / _LOCK).exists():
            replaced = self.lock, self._directory
            self.lock, self._directory = _lock(self.path)
            for descriptor in replaced:
                os.close(descriptor)
        unfinished = self.path / "metrics.new"
        unfinished.mkdir(exist_ok=True)
        (unfinished / INCOMPLETE).touch()
        unfinished.rename(self._metrics)
        _log.warning("another program removed the server's run directory; it was made again", folder=str(self.path))

    def combined_metrics(self) -> CollectorRegistry:
        """Return the combined metrics of all processes."""
        return combined_registry(str(self._metrics))


def _lock(path: Path) -> tuple[int, int]:
    """Make the lock file in a directory and lock both; returns the descriptors of the file and of the directory."""
    unlocked = path / f".{_LOCK}"  # renamed once locked: a server that starts now must not remove it
    lock = os.open(unlocked, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unlocked.rename(path / _LOCK)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(directory, fcntl.LOCK_SH)
    return lock, directory


def _path_of(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


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
