"""The gRPC server: it listens before HTTP does, and stops with it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode
from grpc._cython import cygrpc

from service.app import Service
from service.core.settings import Settings
from service.grpc import server as grpc_server
from service.grpc.server import open_grpc_server, wait_until_quiet
from service.lifecycle.end_requests import EndRequests
from service.web.server import DrainingServer, OpenExtraServer
from tests.fakes.clock import Clock
from tests.serving.grpc_client import GrpcClient, answer_of
from tests.serving.ports import free_port
from tests.serving.waiting import wait_until


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


class _Kept(logging.Handler):
    """Keeps the messages of log records."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def test_clients_that_leave_as_they_are_answered_are_not_logged_as_errors(serve_grpc: Any) -> None:
    """Grpcio logs a traceback for each: of clients with short deadlines, that was one call in 170."""
    kept, logger = _Kept(), logging.getLogger("grpc._cython.cygrpc")
    logger.addHandler(kept)
    try:
        running = serve_grpc()
        for error in (cygrpc.ExecuteBatchError("SendStatusFromServer"), ValueError("another")):
            logger.error("%s raised in core", type(error).__name__, exc_info=error)
        running.stop()
    finally:
        logger.removeHandler(kept)
    assert kept.messages == ["ValueError raised in core"]
    assert not logger.filters
