"""A real PostgreSQL server on loopback with files of its own: Debian's, or the one in PATH."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.serving.s3_server import unused_port
from tests.serving.waiting import wait_until

PASSWORD = "pa#ss?w%rd-that-must-not-be-logged"
WRITTEN = "pa%23ss%3Fw%25rd-that-must-not-be-logged"
"""The password as it is written in an address."""
_OPTIONS = {"fsync": "off", "listen_addresses": "127.0.0.1", "max_connections": "200", "unix_socket_directories": ""}


@dataclass
class PostgresCluster:
    """A server with one user, `retouch`; every test has a database of its own."""

    programs: Path
    folder: Path
    options: Mapping[str, str]
    port: int = field(default_factory=unused_port)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [part for name, value in self.options.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.folder / "data", "-p", str(self.port), *options],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **_not_root(),
            )
        wait_until(self._answers)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT cuts all connections and writes everything, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Let nothing of it run, so that clients wait: the process and those of its connections."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal_all(signal.SIGCONT)

    def new_database(self) -> str:
        """Create a database; its address."""
        name = f"test_{uuid4().hex}"
        self._ask("createdb", name)
        return self.url(name)

    def url(self, name: str) -> str:
        return f"postgresql://retouch:{WRITTEN}@127.0.0.1:{self.port}/{name}"

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in (self._process.pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with suppress(subprocess.CalledProcessError):
            self._ask("psql", "-c", "SELECT 1", "postgres")
            return True
        return False

    def _ask(self, program: str, *arguments: str) -> None:
        address = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "retouch")
        environ = {"PGPASSWORD": PASSWORD, "PGCONNECT_TIMEOUT": "2"}
        subprocess.run([self.programs / program, *address, *arguments], env=environ, check=True, capture_output=True)


@contextmanager
def running_postgres(options: Mapping[str, str] | None = None) -> Iterator[PostgresCluster]:
    """Run a server until the block ends; the test is skipped where PostgreSQL is not installed.

    Args:
        options: settings of the server beside those of the tests.
    """
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="retouch-postgres-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            for path in (folder, secret):
                shutil.chown(path, "postgres", "postgres")
        files = ("-D", folder / "data", "--pwfile", secret)
        subprocess.run(
            [programs / "initdb", *files, "-U", "retouch", "-A", "scram-sha-256", "--no-sync", "--locale", "C.UTF-8"],
            check=True,
            capture_output=True,
            cwd=folder,
            **_not_root(),
        )
        cluster = PostgresCluster(programs, folder, {**_OPTIONS, **(options or {})})
        cluster.start()
        try:
            yield cluster
        finally:
            with suppress(ProcessLookupError, AssertionError):
                cluster.thaw()
            cluster.stop(signal.SIGQUIT)


def _programs() -> Path | None:
    """The folder of the newest installed server's programs; None without a server."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if found:
        return max(found, key=lambda path: int(path.parent.name))
    initdb = shutil.which("initdb")
    return Path(initdb).parent if initdb else None


def _not_root() -> dict[str, Any]:
    """Arguments of a process that root starts as another user: the server does not run as root."""
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
