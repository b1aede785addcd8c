"""What the processes of one server share on disk while it runs: Unix sockets and the files of prometheus_client.

It is removed at the end. What a killed server left is removed at the next start: its lock, which every process of a
server inherits, is free then.
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
from service.telemetry.metrics import gathered

_PREFIX = "retouch-run-"
_LOCK = "lock"
_BACKLOG = 256
_LONGEST_SOCKET_PATH = 107
"""Bytes, on Linux."""
_LONGEST_NAME = Path(f"{_PREFIX}12345678", "engine-63.sock")


class RunDirectory:
    """A folder of this user's; it is removed when the block ends.

    Args:
        path: the folder.
        lock: descriptor of its lock, held; every process inherits it.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.lock = lock

    @classmethod
    def make(cls, parent: Path | None = None) -> RunDirectory:
        """A fresh folder; those of servers that are gone are removed.

        Raises:
            SettingsInvalid: the folder for temporary files has too long a name for a socket in it.
        """
        parent = parent or Path(tempfile.gettempdir())
        longest = _LONGEST_SOCKET_PATH - len(os.fsencode(_LONGEST_NAME)) - 1
        if len(os.fsencode(parent)) > longest:
            raise SettingsInvalid(
                f"--workers keeps sockets in the folder for temporary files, whose name may have {longest} bytes; set "
                f"TMPDIR to a shorter one than {parent}"
            )
        for left in parent.glob(f"{_PREFIX}*"):
            _remove_if_unused(left)
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        unlocked = path / f".{_LOCK}"  # under its own name once it is held: a server that starts now lets the folder be
        lock = os.open(unlocked, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        unlocked.rename(path / _LOCK)
        (path / "metrics").mkdir()
        return cls(path, lock)

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)

    @property
    def environment(self) -> dict[str, str]:
        """Of every process: where prometheus_client keeps its numbers."""
        return {"PROMETHEUS_MULTIPROC_DIR": str(self.path / "metrics")}

    def sockets(self, engines: int) -> list[Path]:
        """Where engine processes listen."""
        return [self.path / f"engine-{index}.sock" for index in range(engines)]

    def listen(self, index: int) -> socket.socket:
        """The socket of an engine process. It outlives the process: who connects meanwhile waits for the next."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.sockets(index + 1)[index]))
        listener.listen(_BACKLOG)
        return listener

    def forget_metrics(self, pid: int) -> None:
        """A process is gone: its gauges vanish, its counters stay in the sums."""
        mark_process_dead(pid, str(self.path / "metrics"))  # type: ignore[no-untyped-call]

    def metrics(self) -> CollectorRegistry:
        """The series of all processes."""
        return gathered(str(self.path / "metrics"))


def _remove_if_unused(path: Path) -> None:
    with suppress(OSError):  # somebody else's, or gone just now
        lock = os.open(path / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
