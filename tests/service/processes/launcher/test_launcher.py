"""Real processes: they are started, killed under load, started again, drained, and never left behind."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import pytest

from service.processes.launcher.child import Child
from tests.serving.waiting import wait_until

Files = dict[str, tuple[str, bytes, str]]


@dataclass
class Server:
    """A launcher and its processes."""

    launcher: subprocess.Popen[bytes]
    log: Path
    temporary: Path

    def lines(self, event: str) -> list[dict[str, object]]:
        whole, _, _ = self.log.read_text().rpartition("\n")  # the last line may be half written
        found = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [line for line in found if line.get("event") == event]

    @property
    def url(self) -> str:
        wait_until(lambda: self.lines("serving") or self.launcher.poll() is not None, 120)
        return str(self.lines("serving")[0]["url"])

    def pid(self, name: str) -> int:
        """Of the process that has that place now."""
        return [int(str(line["pid"])) for line in self.lines("process started") if line["process"] == name][-1]

    def processes(self) -> list[psutil.Process]:
        return psutil.Process(self.launcher.pid).children(recursive=True)

    @property
    def run_directories(self) -> list[Path]:
        return list(self.temporary.glob("retouch-run-*"))


@pytest.fixture
def start(models_dir: Path, tmp_path: Path, short_folder: Path) -> Iterator[Callable[..., Server]]:
    """Start `retouch serve` with settings; whatever is left of it is killed after the test."""
    started: list[tuple[subprocess.Popen[bytes], list[psutil.Process]]] = []

    def run(**settings: object) -> Server:
        chosen = {
            "port": 0,
            "engine": "fake",
            "workers": 2,
            "models_dir": models_dir,
            "results_dir": tmp_path / "results",
            "engine_cache_dir": tmp_path / "cache",
            **settings,
        }
        environ = {f"RETOUCH_{name.upper()}": str(value) for name, value in chosen.items()}
        log = tmp_path / f"log-{len(started)}"
        with log.open("wb") as file:
            launcher = subprocess.Popen(
                [sys.executable, "-m", "retouch", "serve"],
                env={**os.environ, **environ, "TMPDIR": str(short_folder)},
                stderr=file,
            )
        started.append((launcher, []))
        return Server(launcher, log, short_folder)

    yield run
    for launcher, _ in started:
        left = psutil.Process(launcher.pid).children(recursive=True) if launcher.poll() is None else []
        launcher.kill()
        launcher.wait(10)
        for process in left:
            process.kill()


async def ready(server: Server, front_ends: int = 2) -> None:
    """Wait until so many front ends have begun to listen since the start, and fresh connections find them ready."""

    def begun() -> bool:
        assert server.launcher.poll() is None, server.log.read_text()
        return len(server.lines("serving")) >= front_ends

    await asyncio.to_thread(wait_until, begun, 120)
    url, good, end = server.url, 0, time.monotonic() + 40
    while good < 12:
        assert time.monotonic() < end, server.log.read_text()[-3000:]
        try:
            async with aiohttp.ClientSession(url) as session, session.get("/readyz") as response:
                good = good + 1 if response.status == 200 else 0
        except aiohttp.ClientError:
            good = 0
        if not good:
            await asyncio.sleep(0.05)


def form(files: Files) -> aiohttp.FormData:
    data = aiohttp.FormData()
    for name, (filename, body, media_type) in files.items():
        data.add_field(name, body, filename=filename, content_type=media_type)
    return data


@dataclass
class Load:
    """Clients with a connection each, which send until told to stop."""

    url: str
    files: Files
    stopped: bool = False

    def __post_init__(self) -> None:
        self.answers: Counter[int | str] = Counter()
        self.locations: list[str] = []

    async def client(self) -> None:
        while not self.stopped:
            try:
                async with aiohttp.ClientSession(self.url) as session:
                    await self._until_broken(session)
            except (aiohttp.ClientError, ConnectionError):  # noqa: PERF203 -- its connection was to a process that died
                self.answers["broken"] += 1
                await asyncio.sleep(0.02)

    async def _until_broken(self, session: aiohttp.ClientSession) -> None:
        while not self.stopped:
            async with session.post("/v1/inpaint", data=form(self.files)) as response:
                await response.read()
                self.answers[response.status] += 1
                if response.status == 200:
                    self.locations.append(response.headers["Location"])
                else:
                    assert response.headers.get("Retry-After"), await response.text()
                    await asyncio.sleep(0.05)


def sample_of(metrics: str, pattern: str) -> float:
    return sum(float(value) for value in re.findall(pattern + r" ([0-9.e+-]+)$", metrics, re.MULTILINE))


async def read(url: str, path: str) -> str:
    async with aiohttp.ClientSession(url) as session, session.get(path) as response:
        return await response.text()


async def in_flight(server: Server, count: int) -> str:
    """Wait until so many requests are inside at all front ends; the metrics that say so."""
    end = time.monotonic() + 20
    while sample_of(metrics := await read(server.url, "/metrics"), "retouch_requests_in_flight") != count:
        assert time.monotonic() < end, metrics
        await asyncio.sleep(0.01)
    return metrics


async def test_front_ends_and_engines_that_are_killed_under_load_are_replaced_and_everyone_is_answered(
    start: Callable[..., Server], files: Files
) -> None:
    server = start(fake_batch_ms=15, model_poll_s=0.2)
    await ready(server)
    load = Load(server.url, files)
    clients = [asyncio.create_task(load.client()) for _ in range(24)]
    await asyncio.sleep(0.5)
    for name, begun in (("front_end-0", 3), ("engine-0", 3), ("front_end-1", 4)):
        victim, before = server.pid(name), load.answers[200]
        os.kill(victim, signal.SIGKILL)
        await asyncio.to_thread(wait_until, lambda name=name, victim=victim: server.pid(name) != victim)
        await ready(server, begun)
        end = time.monotonic() + 20
        while load.answers[200] < before + 50:
            assert time.monotonic() < end, load.answers
            await asyncio.sleep(0.02)
    load.stopped = True
    await asyncio.wait_for(asyncio.gather(*clients), 90)

    assert set(load.answers) <= {200, 503, "broken"}, load.answers
    assert load.answers["broken"] <= 2 * 24, "only connections to a front end that was killed may break"
    metrics = await in_flight(server, 0)
    counted = sample_of(metrics, r'retouch_request_duration_seconds_count\{code="200",endpoint="/v1/inpaint".*\}')
    # counters of processes that were killed stay in the sum; only what was at its end in that moment may have been
    # counted and not have arrived, or have arrived and not been counted
    assert abs(counted - load.answers[200]) <= load.answers["broken"]
    assert sample_of(metrics, "retouch_batch_size_sum{.*}") >= counted
    assert sample_of(metrics, "retouch_ready") == 1
    assert sample_of(metrics, "retouch_worker_restarts_total") == 1
    assert len(set(load.locations)) == load.answers[200]
    for location in load.locations[:: max(1, len(load.locations) // 40)]:  # any front end has every promised result
        async with aiohttp.ClientSession(server.url) as session, session.get(location) as response:
            assert response.status == 200

    server.launcher.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(server.launcher.wait, 30) == 0
    saved = {path.stem for path in (Path(server.log.parent) / "results").rglob("*.png")}
    assert {location.rsplit("/", 1)[1] for location in load.locations} <= saved


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_to_end_finishes_what_is_inside_at_all_front_ends_and_leaves_nothing_behind(
    start: Callable[..., Server], files: Files, tmp_path: Path, number: signal.Signals
) -> None:
    server = start(fake_batch_ms=1000, max_batch_size=32)  # all are inside until the first, alone, is done
    await ready(server)
    processes = server.processes()
    assert len(processes) == 3

    async def post() -> int:
        async with aiohttp.ClientSession(server.url) as session, session.post("/v1/inpaint", data=form(files)) as reply:
            await reply.read()
            return reply.status

    tasks = [asyncio.create_task(post()) for _ in range(32)]
    await in_flight(server, 32)
    server.launcher.send_signal(number)
    assert await asyncio.gather(*tasks) == [200] * 32
    assert await asyncio.to_thread(server.launcher.wait, 30) == 0
    assert len(list((tmp_path / "results").rglob("*.png"))) == 32
    assert not [process for process in processes if process.is_running()]
    assert server.run_directories == []


async def test_when_the_launcher_is_killed_its_processes_finish_their_work_and_end(
    start: Callable[..., Server], files: Files, tmp_path: Path
) -> None:
    server = start(fake_batch_ms=1000, max_batch_size=32)  # all are inside until the first, alone, is done
    await ready(server)
    processes = server.processes()

    async def post() -> int:
        async with aiohttp.ClientSession(server.url) as session, session.post("/v1/inpaint", data=form(files)) as reply:
            await reply.read()
            return reply.status

    tasks = [asyncio.create_task(post()) for _ in range(16)]
    await in_flight(server, 16)
    server.launcher.kill()
    assert await asyncio.gather(*tasks) == [200] * 16
    await asyncio.to_thread(wait_until, lambda: not any(process.is_running() for process in processes), 30)
    assert len(list((tmp_path / "results").rglob("*.png"))) == 16
    assert server.run_directories == []


async def test_a_hangup_to_all_of_them_loses_no_request(start: Callable[..., Server], files: Files) -> None:
    """As `pkill -HUP retouch` sends it, or a service manager that signals the whole group."""
    server = start(fake_batch_ms=1000, max_batch_size=32)
    await ready(server)
    processes = server.processes()

    async def post() -> int:
        async with aiohttp.ClientSession(server.url) as session, session.post("/v1/inpaint", data=form(files)) as reply:
            await reply.read()
            return reply.status

    tasks = [asyncio.create_task(post()) for _ in range(16)]
    await in_flight(server, 16)
    server.launcher.send_signal(signal.SIGHUP)
    for process in processes:
        process.send_signal(signal.SIGHUP)
    assert await asyncio.gather(*tasks) == [200] * 16
    assert await asyncio.to_thread(server.launcher.wait, 30) == 0


async def test_an_engine_process_that_does_not_answer_is_killed_and_replaced(
    start: Callable[..., Server], files: Files
) -> None:
    server = start(workers=1, hang_timeout_s=1.5)
    await ready(server, 1)
    stopped = server.pid("engine-0")
    os.kill(stopped, signal.SIGSTOP)
    async with aiohttp.ClientSession(server.url) as session, session.post("/v1/inpaint", data=form(files)) as reply:
        assert reply.status == 200, "it is asked again of the next"
    assert server.pid("engine-0") != stopped
    server.launcher.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(server.launcher.wait, 30) == 0


async def test_processes_that_stood_still_with_the_whole_machine_are_not_killed(start: Callable[..., Server]) -> None:
    server = start(workers=1, hang_timeout_s=1.5)
    await ready(server, 1)
    processes = [psutil.Process(server.launcher.pid), *server.processes()]
    for process in processes:
        process.suspend()
    await asyncio.sleep(2)
    for process in processes:  # the launcher first
        process.resume()
        await asyncio.sleep(0.3)
    await asyncio.to_thread(
        wait_until, lambda: server.lines("the launcher stood still; processes get time to show life")
    )
    await asyncio.sleep(1)
    assert server.lines("process ended") == []
    server.launcher.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(server.launcher.wait, 30) == 0


async def test_a_second_signal_cuts_the_drain_short(start: Callable[..., Server]) -> None:
    server = start(workers=1, drain_delay_s=60)
    await ready(server, 1)
    server.launcher.send_signal(signal.SIGTERM)
    await asyncio.to_thread(wait_until, lambda: server.lines("draining"))
    assert server.launcher.poll() is None
    server.launcher.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(server.launcher.wait, 30) == 1


def test_a_port_that_is_taken_stops_the_start(start: Callable[..., Server], free_port: int) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", free_port))
        taken.listen()
        server = start(port=free_port)
        assert server.launcher.wait(60) == 2
    assert "cannot listen" in server.log.read_text()


def test_a_process_that_the_system_cannot_start_now_is_started_later() -> None:
    failures = [OSError(errno.EAGAIN, "Resource temporarily unavailable")] * 2

    def spawn() -> subprocess.Popen[bytes]:
        if failures:
            raise failures.pop()
        return subprocess.Popen([sys.executable, "-c", ""])

    child = Child("front_end-0", spawn, lambda _pid: None, lambda: 0.0)
    child.start(100.0)
    assert (child.running, child.due_at) == (False, 100.0)
    child.start(100.0)
    assert (child.running, child.due_at) == (False, 100.5)
    child.start(child.due_at)
    wait_until(lambda: child.reap(101.0) == 0)
