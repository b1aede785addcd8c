"""docker/ray/haproxy.cfg: the requests that a real HAProxy forwards to replicas, which echo them."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from service.ray.proxy_table import ProxyTable
from tests.serving.backing.haproxy import HAPROXY, Proxy, haproxy
from tests.serving.ports import free_port
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed (apt-get install haproxy)")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_JOB = {"Prefer": "respond-async"}


class Replica(ThreadingHTTPServer):
    """A ready server that answers with the request's headers; it cuts off the next `loses` POSTs without a reply."""

    def __init__(self) -> None:
        self.loses = 0
        self.keys: list[str | None] = []
        """The Idempotency-Key of each POST, including lost ones."""
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Replica

    def do_GET(self) -> None:
        body = json.dumps([[name.lower(), value] for name, value in self.headers.items()]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.keys.append(self.headers["Idempotency-Key"])
        if self.server.loses:
            self.server.loses -= 1
            self.close_connection = True
        else:
            self.do_GET()

    def log_message(self, *_: object) -> None:
        """Discard the server's log."""


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    with haproxy(tmp_path, free_port(), unready_timeout="300ms") as running:
        yield running


@pytest.fixture
def replica(proxy: Proxy) -> Iterator[Replica]:
    """A replica in the proxy's table."""
    with Replica() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        ProxyTable(proxy.socket).place("r1", address)
        wait_until(lambda: proxy.ready == {address})
        yield server
        server.shutdown()


def sent(reply: httpx.Response, name: str) -> list[str]:
    """Return the values of a header that reached the replica."""
    headers: list[tuple[str, str]] = reply.raise_for_status().json()
    return [value for given, value in headers if given == name]


def problem(reply: httpx.Response) -> dict[str, Any]:
    assert reply.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = reply.json()
    assert told["status"] == reply.status_code
    assert told["request_id"] == reply.headers["x-request-id"]
    assert reply.headers["retry-after"] == "5"
    return told


@pytest.mark.usefixtures("replica")
def test_a_replica_learns_the_address_of_a_client_and_not_what_the_client_says(proxy: Proxy) -> None:
    forged = [
        ("X-Forwarded-For", "203.0.113.7"),
        ("X-Forwarded-For", "203.0.113.8"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=203.0.113.9"),
    ]
    reply = httpx.get(f"{proxy.url}/livez", headers=forged)
    assert sent(reply, "x-forwarded-for") == ["127.0.0.1"]
    assert sent(reply, "x-forwarded-proto") == ["http"]
    assert sent(reply, "forwarded") == []


def test_both_tries_of_a_job_have_one_key(proxy: Proxy, replica: Replica) -> None:
    replica.loses = 1
    reply = httpx.post(f"{proxy.url}/v1/inpaint", content=b"picture", headers=_JOB)
    first, second = replica.keys
    assert first == second
    assert sent(reply, "idempotency-key") == [second]
    assert _UUID.fullmatch(str(second))


def test_two_jobs_have_two_keys(proxy: Proxy, replica: Replica) -> None:
    for _ in range(2):
        httpx.post(f"{proxy.url}/v1/inpaint", content=b"picture", headers=_JOB)
    assert len(set(replica.keys)) == 2


def test_the_key_of_a_client_is_kept(proxy: Proxy, replica: Replica) -> None:
    replica.loses = 1
    httpx.post(f"{proxy.url}/v1/inpaint", content=b"picture", headers={**_JOB, "Idempotency-Key": "mine"})
    assert replica.keys == ["mine", "mine"]


def test_a_request_that_is_no_job_gets_no_key(proxy: Proxy, replica: Replica) -> None:
    httpx.post(f"{proxy.url}/v1/inpaint", content=b"picture")
    assert replica.keys == [None]


def test_a_lost_request_that_is_too_large_to_be_sent_again_is_told_of(proxy: Proxy, replica: Replica) -> None:
    replica.loses = 1
    told = problem(httpx.post(f"{proxy.url}/v1/inpaint", content=bytes(2 << 20)))
    assert (told["status"], told["code"], told["retryable"]) == (502, "worker_lost", True)
    assert told["instance"] == "/v1/inpaint"
    assert len(replica.keys) == 1


def test_a_server_that_is_frozen_while_no_other_is_ready_costs_no_more_than_a_few_seconds(proxy: Proxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        ProxyTable(proxy.socket).place("r1", f"127.0.0.1:{frozen.getsockname()[1]}")
        told = problem(httpx.get(f"{proxy.url}/v1/models", timeout=10))
    assert (told["status"], told["code"], told["retryable"]) == (504, "worker_lost", True)
