"""A real PostgreSQL server with its own data directory; its programs are Debian's, or those in PATH."""

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

from tests.serving.hosts.network import Host
from tests.serving.ports import free_port
from tests.serving.waiting import wait_until

PASSWORD = "pa#ss?w%rd-that-must-not-be-logged"
WRITTEN = "pa%23ss%3Fw%25rd-that-must-not-be-logged"
"""The password as percent-encoded in a URL."""
_OPTIONS = {"fsync": "off", "max_connections": "200", "unix_socket_directories": ""}
_USER = "postgres"
_NEIGHBOURS = "host all all samenet scram-sha-256\nhost replication all samenet scram-sha-256\n"


@dataclass
class PostgresCluster:
    """A server with one user, `retouch`; each test creates its own database."""

    programs: Path
    folder: Path
    options: Mapping[str, str]
    host: Host | None = None
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return self.host.address if self.host else "127.0.0.1"

    def create(self) -> None:
        """Create the data directory with initdb; the tests' databases come later, from `new_database`."""
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            shutil.chown(secret, _USER, _USER)
        files = ("-D", self.folder / "data", "--pwfile", secret)
        self._run("initdb", *files, "-U", "retouch", "-A", "scram-sha-256", "--no-sync", "--locale", "C.UTF-8")
        with (self.folder / "data/pg_hba.conf").open("a") as access:
            access.write(_NEIGHBOURS)

    def follow(self, primary: PostgresCluster) -> None:
        """Delete this server's data and start it as the standby of another server."""
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        source = f"host={primary.address} port={primary.port} user=retouch application_name=standby"
        self._run("pg_basebackup", "-D", self.folder / "data", "-R", "-c", "fast", "--no-sync", "-d", source)
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers a query."""
        chosen = {**self.options, "listen_addresses": self.address}
        options = [part for name, value in chosen.items() for part in ("-c", f"{name}={value}")]
        command, rights = self._as_server("postgres", "-D", self.folder / "data", "-p", str(self.port), *options)
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **rights)
        wait_until(self._answers)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT is a fast shutdown (connections are cut, data is written), SIGQUIT a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Suspend the server's process and those of its connections with SIGSTOP, so that clients wait."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the suspended processes."""
        self._signal_all(signal.SIGCONT)

    def new_database(self) -> str:
        """Create a database and return its URL."""
        name = f"test_{uuid4().hex}"
        self._ask("createdb", name)
        return self.url(name)

    def url(self, name: str) -> str:
        return f"postgresql://retouch:{WRITTEN}@{self.address}:{self.port}/{name}"

    def query(self, statement: str) -> str:
        """Run a statement and return what psql prints, without headers and alignment."""
        return self._ask("psql", "--no-align", "--tuples-only", "-c", statement, "postgres").strip()

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
            return self.query("SELECT 1") == "1"
        return False

    def _ask(self, program: str, *arguments: str) -> str:
        address = ("-h", self.address, "-p", str(self.port), "-U", "retouch")
        environ = {"PGPASSWORD": PASSWORD, "PGCONNECT_TIMEOUT": "2"}
        command = [self.programs / program, *address, *arguments]
        return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout

    def _run(self, program: str, *arguments: str | Path) -> None:
        command, rights = self._as_server(program, *arguments)
        environ = {**os.environ, "PGPASSWORD": PASSWORD}
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, env=environ, **rights)

    def _as_server(self, program: str, *arguments: str | Path) -> tuple[list[str], dict[str, Any]]:
        """Return the command line for the server's host, and arguments for Popen: PostgreSQL does not run as root."""
        command = [str(self.programs / program), *map(str, arguments)]
        if self.host is not None:
            return self.host.command(*command, user=_USER), {}
        as_user = {"user": _USER, "group": _USER, "extra_groups": []}
        return command, as_user if os.geteuid() == 0 else {}


@contextmanager
def running_postgres(options: Mapping[str, str] | None = None, host: Host | None = None) -> Iterator[PostgresCluster]:
    """Run a server until the block ends; the test is skipped where PostgreSQL is not installed.

    Args:
        options: settings of the server in addition to those of all tests.
        host: the host that the server runs on; None for this machine.
    """
    with _new_cluster(options or {}, host) as cluster:
        cluster.create()
        cluster.start()
        yield cluster


@dataclass
class PostgresPair:
    """A server and its synchronous standby."""

    primary: PostgresCluster
    standby: PostgresCluster

    def fail_over(self) -> None:
        """Crash the primary, unless it is already down, and promote the standby."""
        self.primary.stop(signal.SIGQUIT)
        self.standby.query("SELECT pg_promote(true, 60)")
        self.standby.query("ALTER SYSTEM SET synchronous_standby_names = ''")
        self.standby.query("SELECT pg_reload_conf()")
        self.primary, self.standby = self.standby, self.primary

    def restore(self) -> None:
        """Start the stopped server as the standby of the running one; from then on commits wait for the standby."""
        self.standby.follow(self.primary)
        self.primary.query("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        self.primary.query("SELECT pg_reload_conf()")
        sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        wait_until(lambda: self.primary.query(sync) == "1")

    def url(self, database: str) -> str:
        """URL of a database that names both servers."""
        servers = sorted(f"{server.address}:{server.port}" for server in (self.primary, self.standby))
        return f"postgresql://retouch:{WRITTEN}@{','.join(servers)}/{database}"


@contextmanager
def running_pair(one: Host, other: Host) -> Iterator[PostgresPair]:
    """Run a server and its standby until the block ends; skips the test where `running_postgres` does."""
    with running_postgres(host=one) as primary, _new_cluster({}, other) as standby:
        pair = PostgresPair(primary, standby)
        pair.restore()
        yield pair


@contextmanager
def _new_cluster(options: Mapping[str, str], host: Host | None) -> Iterator[PostgresCluster]:
    """Yield a server without data, which is stopped when the block ends."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="retouch-postgres-", ignore_cleanup_errors=True) as name:
        if os.geteuid() == 0:
            shutil.chown(name, _USER, _USER)
        cluster = PostgresCluster(programs, Path(name), {**_OPTIONS, **options}, host)
        try:
            yield cluster
        finally:
            with suppress(ProcessLookupError, AssertionError):
                cluster.thaw()
            cluster.stop(signal.SIGQUIT)


def _programs() -> Path | None:
    """Folder of the newest installed PostgreSQL's programs; None if it is not installed."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if found:
        return max(found, key=lambda path: int(path.parent.name))
    initdb = shutil.which("initdb")
    return Path(initdb).parent if initdb else None
