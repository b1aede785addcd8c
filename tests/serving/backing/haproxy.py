"""A real HAProxy with docker/ray/haproxy.cfg; Retouch's Ray app fills its table of replicas."""

from __future__ import annotations

import csv
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.serving.waiting import wait_until

HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
CONFIG = Path(__file__).parents[3] / "docker/ray/haproxy.cfg"


@dataclass(frozen=True)
class Proxy:
    """A running HAProxy."""

    url: str
    socket: Path

    @property
    def ready(self) -> set[str]:
        """The addresses in its table whose health check succeeded."""
        return {row["addr"] for row in self._replicas() if row["status"] == "UP" and row["addr"]}

    @property
    def retries(self) -> int:
        """The number of times that it has sent a request to a replica again."""
        return next(int(row["wretr"]) for row in self._replicas() if row["svname"] == "BACKEND")

    @property
    def answers(self) -> bool:
        """Whether HAProxy answers commands; its socket file exists slightly earlier."""
        try:
            return bool(self._show_stat())
        except OSError:
            return False

    def _replicas(self) -> list[dict[str, str]]:
        rows = csv.DictReader(line for line in self._show_stat().removeprefix("# ").splitlines() if line)
        return [row for row in rows if row["pxname"] == "replicas"]

    def _show_stat(self) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            connection.sendall(b"show stat\n")
            return connection.makefile().read()


@contextmanager
def haproxy(folder: Path, port: int, body_timeout: str = "30s", unready_timeout: str = "10s") -> Iterator[Proxy]:
    """Run HAProxy on a port of loopback until the block ends.

    Args:
        folder: for the socket and the log; its path must be short, as a socket's path has at most 107 bytes.
        port: a free port.
        body_timeout: how long a request body may take to arrive, in HAProxy's notation.
        unready_timeout: how long a reply may take while no server is ready, in HAProxy's notation.
    """
    assert HAPROXY, "apt-get install haproxy"
    proxy = Proxy(f"http://127.0.0.1:{port}", folder / "haproxy.sock")
    environ = {
        "RETOUCH_BIND": f"127.0.0.1:{port}",
        "RETOUCH_PROXY_SOCKET": str(proxy.socket),
        "RETOUCH_BODY_TIMEOUT": body_timeout,
        "RETOUCH_UNREADY_TIMEOUT": unready_timeout,
    }
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([HAPROXY, "-f", str(CONFIG)], env={**os.environ, **environ}, stderr=log, stdout=log)
    try:
        wait_until(lambda: proxy.answers or process.poll() is not None)
        assert process.poll() is None, (folder / "haproxy.log").read_text()
        yield proxy
    finally:
        process.kill()
        process.wait()
