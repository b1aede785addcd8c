"""The launcher with real processes: it starts, restarts and drains them, and leaves none behind."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import pytest

from service.processes.launcher.child import Child
from tests.service.processes.launcher.real_processes import Files, Server, form, in_flight, ready, sample_of
from tests.serving.waiting import until, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.covers_processes]
HANG_TIMEOUT_S = 5.0
"""Seconds without a heartbeat after which a process hangs; a busy machine pauses one that does not for 2 s."""


@dataclass
class Load:
    """Clients, each with its own connection, that send requests until stopped."""

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


async def test_front_ends_and_engines_that_are_killed_under_load_are_replaced_and_everyone_is_answered(
    tmp_path: Path, start: Callable[..., Server], files: Files
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
        await until(lambda before=before: load.answers[200] >= before + 50)
    load.stopped = True
    await asyncio.wait_for(asyncio.gather(*clients), 90)

    assert set(load.answers) <= {200, 503, "broken"}, load.answers
    assert load.answers["broken"] <= 2 * 24, "only connections to a front end that was killed may break"
    metrics = await in_flight(server, 0)
    counted = sample_of(metrics, r'retouch_request_duration_seconds_count\{code="200",endpoint="/v1/inpaint".*\}')
    # the counters of killed processes stay in the sum; they may differ from the clients' counts only by requests that
    # were ending at the kill: counted and not received, or received and not counted
    assert abs(counted - load.answers[200]) <= load.answers["broken"]
    assert sample_of(metrics, "retouch_batch_size_sum{.*}") >= counted
    assert sample_of(metrics, "retouch_ready") == 1
    assert sample_of(metrics, "retouch_worker_restarts_total") == 1
    assert len(set(load.locations)) == load.answers[200]
    for location in load.locations[:: max(1, len(load.locations) // 40)]:  # by any front end
        async with aiohttp.ClientSession(server.url) as session, session.get(location) as response:
            assert response.status == 200

    server.launcher.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(server.launcher.wait, 30) == 0
    saved = {path.stem for path in (tmp_path / "results").rglob("*.png")}
    assert {location.rsplit("/", 1)[1] for location in load.locations} <= saved


async def test_an_engine_process_that_does_not_answer_is_killed_and_replaced(
    start: Callable[..., Server], files: Files
) -> None:
    server = start(workers=1, hang_timeout_s=HANG_TIMEOUT_S)
    await ready(server, 1)
    stopped = server.pid("engine-0")
    os.kill(stopped, signal.SIGSTOP)
    async with aiohttp.ClientSession(server.url) as session, session.post("/v1/inpaint", data=form(files)) as reply:
        assert reply.status == 200, "it is asked again of the next"
    assert server.pid("engine-0") != stopped
    server.launcher.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(server.launcher.wait, 30) == 0


async def test_processes_that_were_suspended_with_the_whole_machine_are_not_killed(
    start: Callable[..., Server],
) -> None:
    server = start(workers=1, hang_timeout_s=HANG_TIMEOUT_S)
    await ready(server, 1)
    processes = [psutil.Process(server.launcher.pid), *server.processes()]
    for process in processes:
        process.suspend()
    await asyncio.sleep(HANG_TIMEOUT_S + 0.5)
    for process in processes:  # the launcher first
        process.resume()
        await asyncio.sleep(0.3)
    await asyncio.to_thread(
        wait_until, lambda: server.lines("the launcher was suspended; processes get time to send a heartbeat")
    )
    await asyncio.sleep(1)
    assert server.lines("process ended") == []
    server.launcher.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(server.launcher.wait, 30) == 0


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
