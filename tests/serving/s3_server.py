"""A real S3 server on loopback, whose objects are files: rclone's."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.serving.waiting import wait_until

KEY, SECRET = "test-key", "test-secret-that-must-not-be-logged"


@dataclass
class Bucket:
    """A bucket `results` of a running S3 server, whose objects are files."""

    port: int
    folder: Path

    @property
    def names(self) -> set[str]:
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}


@contextmanager
def serving_bucket(folder: Path) -> Iterator[Bucket]:
    """Run the server with keys until the block ends; its files are under `folder`."""
    port, root = unused_port(), folder / "s3"
    (root / "results").mkdir(parents=True)
    rclone = shutil.which("rclone", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert rclone, "the extra `dev` brings rclone"
    arguments = ["serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}", str(root)]
    with (folder / "rclone.log").open("w") as log:
        server = subprocess.Popen(
            [rclone, *arguments, "--vfs-cache-mode", "off"],
            stderr=log,
            env={"RCLONE_CONFIG": "", "HOME": str(folder)},
        )
    try:
        wait_until(lambda: _listens(port))
        yield Bucket(port, root / "results")
    finally:
        server.kill()
        server.wait()


def unused_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 0.5)):
        return True
    return False
