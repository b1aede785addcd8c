"""A real S3 server: `rclone serve s3`, which stores objects as files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.serving.hosts.network import Host
from tests.serving.ports import free_port
from tests.serving.waiting import wait_until

KEY, SECRET = "test-key", "test-secret-that-must-not-be-logged"
_STAYS = "stays"


@dataclass
class Bucket:
    """The bucket `results` of an S3 server that stores objects as files."""

    port: int
    folder: Path
    host: Host | None = None
    _server: subprocess.Popen[bytes] | None = None

    @property
    def names(self) -> set[str]:
        # not rglob, which raises FileNotFoundError for a folder that the server removes meanwhile
        found = (Path(folder, name) for folder, _, names in os.walk(self.folder) for name in names if name != _STAYS)
        return {str(path.relative_to(self.folder)) for path in found}

    def keep_folders(self, prefix: str) -> None:
        """Keep the folders of jobs and of answers under a server's prefix when their last object is deleted.

        rclone's server would remove such a folder, and refuse an object that is being put there at that time. A real
        S3 has no folders.
        """
        for name in (".jobs", *(f".replies/{start:02x}" for start in range(256))):
            folder = self.folder / prefix / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _STAYS).touch()

    @property
    def endpoint(self) -> str:
        """URL of the server."""
        return f"http://{self._address}:{self.port}"

    def start(self) -> None:
        """Start the server, and wait until it listens."""
        rclone = shutil.which("rclone", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert rclone, "the extra `dev` brings rclone"
        root = self.folder.parent
        served = ["serve", "s3", "--addr", f"{self._address}:{self.port}", "--auth-key", f"{KEY},{SECRET}", str(root)]
        command = [rclone, *served, "--vfs-cache-mode", "off"]
        with (root.parent / "rclone.log").open("a") as log:
            self._server = subprocess.Popen(
                self.host.command(*command) if self.host else command,
                stderr=log,
                env={"RCLONE_CONFIG": "", "HOME": str(root.parent), "PATH": os.environ["PATH"]},
            )
        wait_until(lambda: _listens(self._address, self.port))

    def stop(self) -> None:
        """Kill the server; its objects stay."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def freeze(self) -> None:
        """Suspend the server with SIGSTOP, so that clients wait."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the server."""
        assert self._server is not None
        self._server.send_signal(signal.SIGCONT)

    @property
    def _address(self) -> str:
        return self.host.address if self.host else "127.0.0.1"


@contextmanager
def serving_bucket(folder: Path, host: Host | None = None) -> Iterator[Bucket]:
    """Run the server with the access key `KEY` until the block ends; its files are under `folder`."""
    (folder / "s3/results").mkdir(parents=True)
    bucket = Bucket(free_port(), folder / "s3/results", host)
    try:
        bucket.start()
        yield bucket
    finally:
        bucket.stop()


def _listens(address: str, port: int) -> bool:
    with suppress(OSError), closing(socket.create_connection((address, port), 0.5)):
        return True
    return False
