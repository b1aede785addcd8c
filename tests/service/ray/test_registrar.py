"""A proxy's registrar: the replicas that it knows, and a real HAProxy's table, which it restores after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from service.ray.proxy_table import ProxyTable
from service.ray.registrar import Registrar, ReportedServers
from tests.fakes.clock import Clock
from tests.serving.backing.haproxy import HAPROXY, haproxy
from tests.serving.waiting import wait_until


def test_a_server_is_known_for_as_long_as_it_is_reported() -> None:
    clock = Clock(0.0)
    reported = ReportedServers(clock)
    for clock.now in (0.0, 3.0):
        reported.add("a:1")
    reported.add("b:1")
    clock.now = 7.9
    reported.add("b:1")
    assert reported.addresses() == ["a:1", "b:1"]
    clock.now = 8.0
    assert reported.addresses() == ["b:1"]


def test_what_is_reported_is_complete_when_every_server_had_the_time_to_report() -> None:
    clock = Clock(0.0)
    reported = ReportedServers(clock)
    clock.now = 4.9
    assert not reported.is_complete
    clock.now = 5.0
    assert reported.is_complete


def addresses(table: ProxyTable) -> set[str]:
    return {slot.address for slot in table.slots().values()} - {""}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registrar(tmp_path: Path, clock: Clock) -> Iterator[Registrar]:
    one = Registrar(str(tmp_path / "haproxy.sock"), clock)
    yield one
    one.__del__()  # as Ray does


@pytest.mark.slow
@pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed (apt-get install haproxy)")
def test_the_table_of_a_proxy_that_was_started_again_is_written_again(
    registrar: Registrar, tmp_path: Path, free_port: int
) -> None:
    for _ in range(2):
        with haproxy(tmp_path, free_port) as proxy:
            table = ProxyTable(proxy.socket)
            registrar.report("127.0.0.1:9")
            wait_until(lambda table=table: "127.0.0.1:9" in addresses(table))  # type: ignore[misc]
        proxy.socket.unlink()


@pytest.mark.slow
@pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed (apt-get install haproxy)")
def test_a_server_that_is_not_reported_leaves_the_table_but_not_at_the_registrars_start(
    registrar: Registrar, tmp_path: Path, free_port: int, clock: Clock
) -> None:
    with haproxy(tmp_path, free_port) as proxy:
        table = ProxyTable(proxy.socket)
        table.place("r1", "127.0.0.1:8")  # an entry of an earlier registrar
        registrar.report("127.0.0.1:9")
        wait_until(lambda: "127.0.0.1:9" in addresses(table))
        assert table.slots()["r1"].address == "127.0.0.1:8"
        clock.now += 5.0
        wait_until(lambda: not addresses(table))


class _Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Discard the server's log."""


@pytest.mark.slow
@pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed (apt-get install haproxy)")
def test_a_healthy_server_stays_in_the_table_although_it_is_not_reported(
    registrar: Registrar, tmp_path: Path, free_port: int, clock: Clock
) -> None:
    with haproxy(tmp_path, free_port) as proxy, ThreadingHTTPServer(("127.0.0.1", 0), _Ready) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        healthy = f"127.0.0.1:{server.server_port}"
        table = ProxyTable(proxy.socket)
        table.place("r1", healthy)
        wait_until(lambda: proxy.ready == {healthy})
        registrar.report(healthy)
        registrar.report("127.0.0.1:9")
        wait_until(lambda: "127.0.0.1:9" in addresses(table))
        clock.now += 5.0
        wait_until(lambda: "127.0.0.1:9" not in addresses(table))
        assert addresses(table) == {healthy}
        server.shutdown()
        server.server_close()
        wait_until(lambda: not addresses(table))
