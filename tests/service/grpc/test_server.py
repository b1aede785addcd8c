"""The gRPC server: it listens before HTTP does, and stops with it."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from grpc import StatusCode

from service.app import Service
from service.core.settings import Settings
from service.grpc import server as grpc_server
from service.grpc.server import open_grpc_server, wait_until_answered, wait_until_quiet
from service.lifecycle.end_requests import EndRequests
from service.web.server import DrainingServer, OpenExtraServer
from tests.fakes.clock import Clock
from tests.serving.grpc_client import GrpcClient, answer_of, files_request
from tests.serving.ports import free_port
from tests.serving.waiting import wait_until

CLIENTS = 8


def settings_of(models_dir: Path, folder: Path) -> Settings:
    folders = {"models_dir": models_dir, "results_dir": folder / "results", "engine_cache_dir": folder / "cache"}
    return Settings.model_validate({**folders, "port": free_port(), "grpc_port": free_port(), "codec_threads": 1})


@contextmanager
def in_a_thread(
    settings: Settings, extra_server: OpenExtraServer, end_requests: EndRequests | None = None
) -> Iterator[tuple[DrainingServer, threading.Thread]]:
    server = DrainingServer(settings, extra_server=extra_server, end_requests=end_requests)

    def run() -> None:
        try:
            server.run()
        except SystemExit:  # the address is not available
            return

    thread = threading.Thread(target=run, name="server")
    thread.start()
    try:
        yield server, thread
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_http_does_not_listen_before_grpc_does(models_dir: Path, tmp_path: Path) -> None:
    settings, opening, go = settings_of(models_dir, tmp_path), threading.Event(), threading.Event()

    @asynccontextmanager
    async def slowly(service: Service) -> AsyncIterator[None]:
        opening.set()
        await asyncio.to_thread(go.wait, 30)
        async with open_grpc_server(service):
            yield

    with in_a_thread(settings, slowly) as (server, _):
        assert opening.wait(30)
        assert not server.started
        assert not listens(settings.port)
        go.set()
        wait_until(lambda: listens(settings.port))
        with GrpcClient(f"127.0.0.1:{settings.grpc_port}") as client:
            assert client.call("ServerLive").code is StatusCode.OK


def test_grpc_ends_with_a_server_whose_http_port_is_taken(models_dir: Path, tmp_path: Path) -> None:
    settings = settings_of(models_dir, tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", settings.port))
        taken.listen()
        with in_a_thread(settings, open_grpc_server) as (server, thread):
            thread.join(30)
            assert not thread.is_alive()
            assert not server.started
    assert not listens(settings.grpc_port)


@pytest.mark.parametrize(
    ("calls_at", "ended_at"),
    [([], 0.25), ([0.1], 0.35), ([0.1, 0.3], 0.55), ([at / 10 for at in range(100)], 2.0)],
    ids=["none", "one", "a second after the first", "without end"],
)
async def test_the_end_waits_for_calls_that_were_sent_before_it_but_not_without_end(
    calls_at: list[float], ended_at: float
) -> None:
    clock = Clock(50.0)

    async def sleep(seconds: float) -> None:
        clock.now += seconds

    def latest_at() -> float:
        return max((50.0 + at for at in calls_at if 50.0 + at <= clock.now), default=7.0)

    await wait_until_quiet(latest_at, lambda: False, clock, sleep)
    assert clock.now - 50.0 == pytest.approx(ended_at, abs=0.026)


@pytest.mark.parametrize("steps", [0, 1, 5, 9])
async def test_the_shutdown_waits_for_calls_that_came_while_the_event_loop_was_blocked(steps: int) -> None:
    """gRPC hands them over one by one afterwards, the first more than a step late."""
    clock, woken = Clock(50.0), 51.0 + 0.025 * steps
    calls_at = [woken + 0.03, woken + 0.06, woken + 0.09]
    took_s = iter([0.025] * steps + [1.0])

    async def sleep(seconds: float) -> None:
        clock.now += next(took_s, seconds)

    await wait_until_quiet(
        lambda: max((at for at in calls_at if at <= clock.now), default=7.0), lambda: False, clock, sleep
    )
    assert clock.now == pytest.approx(woken + 0.09 + 0.25, abs=0.026)


@pytest.mark.parametrize(("forced_at", "ended_at"), [(0.0, 0.0), (0.6, 0.6)])
async def test_a_forced_end_waits_for_no_further_calls(forced_at: float, ended_at: float) -> None:
    clock = Clock(50.0)

    async def sleep(seconds: float) -> None:
        clock.now += seconds

    await wait_until_quiet(lambda: clock.now, lambda: clock.now >= 50.0 + forced_at, clock, sleep)
    assert clock.now - 50.0 == pytest.approx(ended_at, abs=0.026)


def test_calls_that_come_while_a_stopping_server_is_blocked_are_answered(models_dir: Path, tmp_path: Path) -> None:
    settings, codes = settings_of(models_dir, tmp_path), list[StatusCode]()
    stands, ready, sent = threading.Event(), threading.Event(), threading.Event()

    def stand_still() -> None:
        stands.set()
        assert sent.wait(30)
        time.sleep(0.6)

    @asynccontextmanager
    async def standing(service: Service) -> AsyncIterator[None]:
        async with open_grpc_server(service):
            yield
            asyncio.get_running_loop().call_later(0.05, stand_still)

    def send() -> None:
        with GrpcClient(f"127.0.0.1:{settings.grpc_port}") as client:
            client.call("ServerLive")
            ready.set()
            assert stands.wait(30)
            futures = [client.start("ServerLive", b"") for _ in range(30)]
            sent.set()
            codes.extend(answer_of(future).code for future in futures)

    with in_a_thread(settings, standing) as (server, thread):
        wait_until(lambda: server.started)
        client = threading.Thread(target=send)
        client.start()
        assert ready.wait(30)
        server.handle_exit(signal.SIGTERM, None)
        client.join(30)
        thread.join(30)
    assert codes == [StatusCode.OK] * 30


def test_a_second_request_to_end_closes_grpc_at_once_though_clients_send_on(
    models_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first request would wait for clients that keep sending: 2 s, and here 60 s, which no pause takes."""
    monkeypatch.setattr(grpc_server, "_MAX_SETTLE_S", 60.0)
    settings = settings_of(models_dir, tmp_path).model_copy(update={"drain_delay_s": 60.0})
    took_s, called, ended = list[float](), threading.Event(), threading.Event()

    @asynccontextmanager
    async def timed(service: Service) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(open_grpc_server(service))
            yield
            begun = time.monotonic()
            await stack.aclose()
            took_s.append(time.monotonic() - begun)

    def send_on() -> None:
        with GrpcClient(f"127.0.0.1:{settings.grpc_port}") as client:
            while not ended.wait(0.02):
                client.call("ServerLive")
                called.set()

    with in_a_thread(settings, timed, EndRequests(apart_s=0.0)) as (server, thread):
        wait_until(lambda: server.started)
        clients = threading.Thread(target=send_on)
        clients.start()
        assert called.wait(30)
        for _ in range(2):
            server.handle_exit(signal.SIGTERM, None)
        thread.join(30)
        ended.set()
        clients.join(30)
        assert not thread.is_alive()
    assert took_s[0] < 20


class Clients:
    """Clients with a connection each, which call again as soon as they are answered, until the server is gone."""

    def __init__(self, address: str, method: str, message: Message | bytes) -> None:
        self.codes = Counter[StatusCode]()
        self._threads = [threading.Thread(target=self._call, args=(address, method, message)) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _call(self, address: str, method: str, message: Message | bytes) -> None:
        with GrpcClient(address) as client:
            gone = False
            while not gone:
                answered = client.call(method, message)
                self.codes[answered.code] += 1
                gone = answered.code is not StatusCode.OK and "x-error-code" not in answered.trailing

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("method", ["ServerLive", "ModelInfer"])
def test_no_call_is_cancelled_and_each_accepted_one_is_answered(
    serve_grpc: Any, photo: bytes, mask: bytes, method: str
) -> None:
    """Clients retry UNAVAILABLE, but not CANCELLED, with which gRPC ends calls that come while it stops."""
    running = serve_grpc()
    clients = Clients(running.grpc_address, method, files_request(photo, mask) if method == "ModelInfer" else b"")
    wait_until(lambda: clients.codes[StatusCode.OK] >= 2 * CLIENTS)
    running.server._loop.call_soon_threadsafe(running.service.begin_draining)
    clients.join()
    running.thread.join(60)
    assert set(clients.codes) == {StatusCode.OK, StatusCode.UNAVAILABLE}
    counted = running.service.metrics.exposition().decode()
    pattern = rf'retouch_request_duration_seconds_count\{{code="200",endpoint="[^"]*{method}",.*\}} (\d+)'
    assert sum(map(int, re.findall(pattern, counted))) == clients.codes[StatusCode.OK]
    assert running.service.drain.clean


@pytest.mark.parametrize(
    ("unanswered", "forced_at", "ended_at"),
    [(0.0, 9.0, 0.0), (0.4, 9.0, 0.4), (9.0, 9.0, 2.0), (9.0, 0.6, 0.6)],
    ids=["no call", "one of 0.4 s", "one without end", "a forced end"],
)
async def test_the_end_waits_for_the_answers_of_accepted_calls_but_not_without_end(
    unanswered: float, forced_at: float, ended_at: float
) -> None:
    clock = Clock(50.0)

    async def sleep(seconds: float) -> None:
        clock.now += seconds

    await wait_until_answered(
        lambda: int(clock.now < 50.0 + unanswered), lambda: clock.now >= 50.0 + forced_at, clock, sleep
    )
    assert clock.now - 50.0 == pytest.approx(ended_at, abs=0.026)
