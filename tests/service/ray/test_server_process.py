"""The server process of a replica."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from service.core.settings import SettingsInvalid
from service.ray.server_process import ServerEnded, ServerProcess, read_depth
from tests.serving.key_files import add_key
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow
Start = Callable[..., ServerProcess]


@pytest.fixture
def start(models_dir: Path, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(**settings: object) -> ServerProcess:
            folders = {"models_dir": models_dir, "results_dir": tmp_path / "r", "engine_cache_dir": tmp_path / "c"}
            server = ServerProcess({"engine": "fake", "workers": 0, **folders, **settings}, "127.0.0.1")
            stack.callback(server.stop, 20)
            return server

        yield started


@pytest.mark.parametrize("workers", [0, 1])
def test_a_server_says_when_it_is_ready_and_how_deep_its_queue_is_and_drains(start: Start, workers: int) -> None:
    server = start(workers=workers)
    server.wait_for("/readyz")
    assert server.queue_depth() == 0.0
    server.stop(20)
    assert server.status == 0
    assert not server.answers("/livez")


def test_a_server_that_asks_for_keys_says_how_deep_its_queue_is_all_the_same(start: Start, tmp_path: Path) -> None:
    add_key(tmp_path / "keys.json")
    server = start(keys_file=tmp_path / "keys.json")
    server.wait_for("/readyz")
    assert server.queue_depth() == 0.0


def test_settings_of_the_node_count_except_for_ports_which_a_second_replica_would_want_too(
    start: Start, tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_key(tmp_path / "keys.json")
    monkeypatch.setenv("RETOUCH_KEYS_FILE", str(tmp_path / "keys.json"))
    monkeypatch.setenv("RETOUCH_METRICS_PORT", str(free_port))
    monkeypatch.setenv("RETOUCH_GRPC_PORT", str(free_port))
    servers = [start(results_dir=tmp_path / name) for name in "ab"]
    for server in servers:
        server.wait_for("/readyz")
        assert server.queue_depth() == 0.0


def test_a_depth_that_the_metrics_do_not_tell_is_not_zero() -> None:
    assert read_depth("# TYPE retouch_queue_depth gauge\nretouch_queue_depth 3\n") == 3.0
    with pytest.raises(LookupError, match="retouch_queue_depth"):
        read_depth("# TYPE other gauge\nother 3\n")


def test_settings_that_are_invalid_on_this_node_are_reported(start: Start) -> None:
    with pytest.raises(SettingsInvalid, match="max_batch_size"):
        start(max_batch_size=-1)


def test_a_server_that_cannot_start_is_reported(start: Start) -> None:
    server = start(keys_file="/missing/keys.json")
    with pytest.raises(ServerEnded, match=r"ended with status [12]"):
        server.wait_for("/livez")


def test_a_server_that_does_not_end_is_killed(start: Start) -> None:
    server = start()
    server.wait_for("/livez")
    process = _listener(server)
    process.send_signal(signal.SIGSTOP)
    server.stop(0.5)
    assert server.status == -signal.SIGKILL


def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path, models_dir: Path) -> None:
    code = (
        "from service.ray.server_process import ServerProcess\n"
        f"server = ServerProcess({{'engine': 'fake', 'workers': 0, 'models_dir': '{models_dir}', "
        f"'results_dir': '{tmp_path}/r', 'engine_cache_dir': '{tmp_path}/c'}}, '127.0.0.1')\n"
        "server.wait_for('/livez')\nprint(server.address, flush=True)\nserver.ended.wait()"
    )
    replica = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with replica:
        assert replica.stdout is not None
        port = int(replica.stdout.readline().rpartition(":")[2])
        (server,) = (one for one in psutil.Process(replica.pid).children() if _listens(one, port))
        os.kill(replica.pid, signal.SIGKILL)
        wait_until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)


def _listener(server: ServerProcess) -> psutil.Process:
    port = int(server.address.rpartition(":")[2])
    (found,) = (one for one in psutil.Process().children() if _listens(one, port))
    return found


def _listens(process: psutil.Process, port: int) -> bool:
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in process.net_connections())
