"""Files of the metrics of several processes, whose space on the disk is allocated before it is used.

prometheus_client maps sparse files into memory. When the disk has no space for a page of such a file, the kernel kills
the process that writes to it (SIGBUS). Here a file that does not fit on the disk is kept in memory instead: its process
counts on, and other processes read the file's last contents on the disk until there is space again. A file that another
program removed, such as one that removes old temporary files, is made again.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import structlog
from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict

_log = structlog.get_logger(__name__)
INCOMPLETE = "incomplete"
"""Name of a file that is in the folder while files that were removed from it are missing."""
RETRY_S = 5.0
"""Least seconds between two checks of a file that is on the disk, or attempts to store one that is not."""
_MIN_BYTES = 1 << 16
_ENTRY_BYTES = 32
"""Largest size of an entry without its key: the key's length, its padding, value and timestamp."""


def use_metric_files() -> MetricFiles:
    """Let metrics that are made later keep their values in files; returns the files of this process."""
    if not isinstance(files := getattr(values.MmapedDict, "__self__", None), MetricFiles):  # type: ignore[attr-defined]
        files = MetricFiles(os.environ.get("PROMETHEUS_MULTIPROC_DIR", ""))
        values.MmapedDict = files.open  # type: ignore[assignment, attr-defined] # a name that the module imports
    return files


class MetricFiles:
    """The files of this process's metrics.

    Args:
        folder: path of their folder; empty if this process keeps its metrics in memory.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._files: list[MetricFile] = []

    def open(self, path: str) -> MetricFile:
        """Open a file that `store_missing` then checks."""
        self._files.append(file := MetricFile(path))
        return file

    def store_missing(self) -> None:
        """Store files that were removed or did not fit, also those whose values no longer change. Thread-safe."""
        for file in tuple(self._files):
            file.store_if_missing()


class MetricFile(MmapedDict):
    """Values by key, in a file that others read while this process writes it.

    Not thread-safe, except that `store_if_missing` may be called while another thread writes a value.

    Args:
        path: path of the file. One that exists, of a dead process with the same id, is continued.
        now: a monotonic clock, in seconds.
    """

    def __init__(self, path: str, now: Callable[[], float] = time.monotonic) -> None:
        self._path, self._now, self._stored = path, now, True
        self._check_at, self._lock = now() + RETRY_S, threading.RLock()
        try:
            descriptor = _open(path, os.O_RDWR)
        except OSError:  # there is none
            descriptor = self._make_file(b"", _MIN_BYTES)
        super().__init__(f"/proc/self/fd/{descriptor}")  # type: ignore[no-untyped-call]
        os.close(descriptor)

    def read_value(self, key: str) -> tuple[float, float]:
        """Return a value and its timestamp; a new key gets 0."""
        with self._lock:
            value: tuple[float, float] = super().read_value(key)  # type: ignore[no-untyped-call]
        return value

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        """Set a value, after `store_if_missing`."""
        with self._lock:
            self.store_if_missing()
            super().write_value(key, value, timestamp)  # type: ignore[no-untyped-call]

    def store_if_missing(self) -> None:
        """Store the file on the disk if it was removed, or may now have space; checks once in `RETRY_S`."""
        if self._now() < self._check_at:
            return
        with self._lock:
            self._check_at = self._now() + RETRY_S
            if not (self._stored and os.path.exists(self._path)):  # noqa: PTH110 -- paths are strings here
                self._move(self._capacity)

    def _init_value(self, key: str) -> None:
        needed, capacity = self._used + len(key.encode()) + _ENTRY_BYTES, self._capacity
        while needed > capacity:
            capacity *= 2
        if capacity > self._capacity:
            self._move(capacity)
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _move(self, capacity: int) -> None:
        """Continue in a new file of that size, with the same values."""
        descriptor = self._make_file(self._m[: self._used], capacity)
        self._f.close()
        self._m.close()
        self._f = os.fdopen(descriptor, "r+b")
        self._m, self._capacity = mmap.mmap(descriptor, capacity), capacity

    def _make_file(self, content: bytes, size: int) -> int:
        """Return the descriptor of a new file: in place of the one at the path or, if it does not fit, in memory."""
        try:
            descriptor = _replace_file(self._path, content, size)
        except OSError as error:
            if self._stored:
                _log.warning(
                    "metrics are incomplete: a file cannot be written; make space in the folder for temporary files",
                    file=self._path,
                    error=error.strerror,
                )
            self._stored = False
            descriptor = os.memfd_create("metrics")
            os.truncate(descriptor, size)
            os.pwrite(descriptor, content, 0)
        else:
            self._stored = True
        return descriptor


def _replace_file(path: str, content: bytes, size: int) -> int:
    """Replace a file by one with this content, for whose size space is allocated, and return its descriptor.

    The path never names a file without its content, because such a file would make `/metrics` fail.

    Raises:
        OSError: the disk has no space for it, or as raised by `_open`; nothing has changed.
    """
    unfinished = f"{path}.new"
    descriptor = _open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.posix_fallocate(descriptor, 0, size)
        os.pwrite(descriptor, content, 0)
        os.rename(unfinished, path)  # noqa: PTH104 -- as above
    except OSError:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(unfinished)  # noqa: PTH108 -- as above
        raise
    return descriptor


def _open(path: str, flags: int) -> int:
    """Open a file in a folder of this user and return its descriptor.

    Where the folder was removed, another user can make one with links in it to files that only this user may write.

    Raises:
        OSError: the folder is another user's, the path is a link, or the file cannot be opened.
    """
    folder, name = os.path.split(path)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if os.fstat(directory).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "another user has put a folder in place of the server's", folder)
        return os.open(name, flags | os.O_NOFOLLOW, 0o644, dir_fd=directory)
    finally:
        os.close(directory)
