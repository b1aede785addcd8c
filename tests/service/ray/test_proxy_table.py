"""The changes that update HAProxy's table of replicas, computed and applied to a real HAProxy."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

from service.ray.proxy_table import ProxySlot, ProxyTable, plan_changes
from tests.serving.backing.haproxy import HAPROXY, Proxy, haproxy
from tests.serving.waiting import wait_until


@pytest.mark.parametrize(
    ("wanted", "slots", "changes"),
    [
        pytest.param([], {"r1": ProxySlot(), "r2": ProxySlot()}, {}, id="nobody there"),
        pytest.param(["a:1"], {"r1": ProxySlot(), "r2": ProxySlot()}, {"r1": "a:1"}, id="the first"),
        pytest.param(["a:1"], {"r1": ProxySlot(), "r2": ProxySlot("a:1")}, {}, id="there already"),
        pytest.param(
            ["b:1"], {"r1": ProxySlot("a:1"), "r2": ProxySlot()}, {"r1": "", "r2": "b:1"}, id="one for another"
        ),
        pytest.param(["b:1"], {"r1": ProxySlot("a:1")}, {"r1": "b:1"}, id="in the slot of one that is gone"),
        pytest.param(["b:1"], {"r1": ProxySlot("a:1", down=False)}, {}, id="not in the slot of a healthy one"),
        pytest.param(
            [], {"r1": ProxySlot("a:1", down=False), "r2": ProxySlot("b:1")}, {"r2": ""}, id="a healthy one stays"
        ),
        pytest.param(
            ["a:1", "b:1", "c:1"], {"r1": ProxySlot("a:1"), "r2": ProxySlot()}, {"r2": "b:1"}, id="more than slots"
        ),
    ],
)
def test_the_table_is_changed_only_where_it_differs(
    wanted: list[str], slots: dict[str, ProxySlot], changes: dict[str, str]
) -> None:
    assert plan_changes(wanted, slots) == changes


class _Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ready = True

    def do_GET(self) -> None:
        status = 200 if self.ready or self.path != "/readyz" else 503
        body = self.headers["X-Request-ID"].encode() if "X-Request-ID" in self.headers else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Discard the server's log."""


class _Loading(_Server):
    ready = False


@pytest.fixture
def proxy(request: pytest.FixtureRequest, tmp_path: Path, free_port: int) -> Iterator[Proxy]:
    with haproxy(tmp_path, free_port, body_timeout=getattr(request, "param", "30s")) as running:
        yield running


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), getattr(request, "param", _Server))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


needs_haproxy = pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed (apt-get install haproxy)")


@needs_haproxy
def test_a_server_that_is_placed_gets_requests_once_it_is_ready_and_none_once_it_is_cleared(
    proxy: Proxy, address: str
) -> None:
    table = ProxyTable(proxy.socket)
    assert len(table.slots()) == 64
    assert set(table.slots().values()) == {ProxySlot()}
    assert httpx.get(f"{proxy.url}/livez").json()["code"] == "not_ready"
    table.place("r7", address)
    assert table.slots()["r7"].address == address
    wait_until(lambda: proxy.ready == {address})
    assert table.slots()["r7"] == ProxySlot(address, down=False)
    assert httpx.get(f"{proxy.url}/livez").status_code == 200
    table.clear("r7")
    assert set(table.slots().values()) == {ProxySlot()}
    refused = httpx.get(f"{proxy.url}/livez", headers={"X-Request-ID": "mine"})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert refused.json()["request_id"] == refused.headers["x-request-id"] == "mine"


@needs_haproxy
@pytest.mark.parametrize("address", [_Loading], indirect=True)
def test_while_no_server_is_ready_one_that_lives_answers(proxy: Proxy, address: str) -> None:
    ProxyTable(proxy.socket).place("r1", address)
    assert httpx.get(f"{proxy.url}/readyz").status_code == 503
    assert httpx.get(f"{proxy.url}/livez").status_code == 200
    assert proxy.ready == set()


@pytest.fixture
def ended(proxy: Proxy) -> Iterator[ProxyTable]:
    """The table with eight servers that have ended."""
    table = ProxyTable(proxy.socket)
    with ExitStack() as ports:
        for number in range(1, 9):
            reserved = ports.enter_context(socket.socket())
            reserved.bind(("127.0.0.1", 0))  # nobody listens there
            table.place(f"r{number}", f"127.0.0.1:{reserved.getsockname()[1]}")
        yield table


@needs_haproxy
@pytest.mark.parametrize("address", [_Loading], indirect=True)
def test_while_no_server_is_ready_those_that_have_ended_cost_no_request(
    proxy: Proxy, ended: ProxyTable, address: str
) -> None:
    ended.place("r9", address)
    assert [httpx.get(f"{proxy.url}/livez").status_code for _ in range(40)] == [200] * 40


@needs_haproxy
@pytest.mark.parametrize("address", [_Loading], indirect=True)
def test_a_server_in_the_slot_of_one_that_has_ended_answers_at_once(
    proxy: Proxy, ended: ProxyTable, address: str
) -> None:
    assert httpx.get(f"{proxy.url}/livez").status_code == 503
    ended.place("r1", address)
    assert httpx.get(f"{proxy.url}/livez").status_code == 200


@needs_haproxy
def test_when_all_servers_have_ended_a_request_is_refused_soon(proxy: Proxy, ended: ProxyTable) -> None:
    assert [httpx.get(f"{proxy.url}/livez", timeout=5).json()["code"] for _ in range(3)] == ["not_ready"] * 3
    for slot in ("r2", "r3", "r4", "r5", "r6", "r7", "r8"):
        ended.clear(slot)
    assert httpx.get(f"{proxy.url}/livez", timeout=5).json()["code"] == "not_ready"


@needs_haproxy
@pytest.mark.parametrize(("given", "kept"), [("mine", True), ("a b;c", False), ("x" * 129, False)])
def test_a_request_id_that_is_not_safe_is_replaced(proxy: Proxy, address: str, given: str, kept: bool) -> None:
    ProxyTable(proxy.socket).place("r1", address)
    seen = httpx.get(f"{proxy.url}/livez", headers={"X-Request-ID": given}).text
    assert seen == given if kept else len(seen) == 32


@needs_haproxy
@pytest.mark.parametrize("proxy", ["200ms"], indirect=True)
def test_a_body_that_does_not_come_is_answered_as_the_server_would(proxy: Proxy, address: str) -> None:
    ProxyTable(proxy.socket).place("r1", address)
    with socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(b"POST /v1/inpaint HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n--b")
        answer = HTTPResponse(connection)
        answer.begin()
        problem = json.loads(answer.read())
    assert answer.status == problem["status"] == 408
    assert problem["code"] == "upload_timeout"
    assert problem["instance"] == "/v1/inpaint"
    assert problem["request_id"] == answer.headers["x-request-id"]


def test_an_unreachable_proxy_raises_oserror(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        ProxyTable(tmp_path / "none.sock").slots()
