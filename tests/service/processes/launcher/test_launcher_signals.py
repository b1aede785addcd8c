"""Signals to a server of several processes: it drains and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.service.processes.launcher.real_processes import Files, Server, form, in_flight, ready
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow

_WITH_GRACE_OF_1_S = """
from retouch.__main__ import main
from service.processes.launcher import children
children._GRACE_S, children._STACKS_S = 1, 4
main()
"""
WITH_LITTLE_GRACE = (sys.executable, "-c", _WITH_GRACE_OF_1_S, "serve")
"""Command for `retouch serve` with 1 s, in place of 20 s, for its processes to end after the drain, and 4 s, in place
of 1 s, for the others to write their stacks, as a busy machine pauses processes for up to 2 s."""


async def inpaint(server: Server, files: Files) -> int:
    """Send one request and return the reply's status code."""
    async with aiohttp.ClientSession(server.url) as session, session.post("/v1/inpaint", data=form(files)) as reply:
        await reply.read()
        return reply.status


async def test_a_signal_to_end_finishes_what_is_inside_at_all_front_ends_and_leaves_nothing_behind(
    start: Callable[..., Server], files: Files, tmp_path: Path
) -> None:
    server = start(fake_batch_ms=1000, max_batch_size=32)  # the first request is a batch alone; the others wait for it
    await ready(server)
    processes = server.processes()
    assert len(processes) == 3

    os.kill(engine := server.pid("engine-0"), signal.SIGSTOP)  # else the first could end before the last arrives
    tasks = [asyncio.create_task(inpaint(server, files)) for _ in range(32)]
    await in_flight(server, 32)
    server.launcher.send_signal(signal.SIGTERM)
    os.kill(engine, signal.SIGCONT)
    assert await asyncio.gather(*tasks) == [200] * 32
    assert await asyncio.to_thread(server.launcher.wait, 30) == 0
    assert len(list((tmp_path / "results").rglob("*.png"))) == 32
    assert not [process for process in processes if process.is_running()]
    assert server.run_directories == []


async def test_when_the_launcher_is_killed_its_processes_finish_their_work_and_end(
    start: Callable[..., Server], files: Files, tmp_path: Path
) -> None:
    server = start(fake_batch_ms=1000, max_batch_size=32)  # the first request is a batch alone; the others wait for it
    await ready(server)
    processes = server.processes()

    os.kill(engine := server.pid("engine-0"), signal.SIGSTOP)
    tasks = [asyncio.create_task(inpaint(server, files)) for _ in range(16)]
    await in_flight(server, 16)
    server.launcher.kill()
    os.kill(engine, signal.SIGCONT)
    assert await asyncio.gather(*tasks) == [200] * 16
    await asyncio.to_thread(wait_until, lambda: not any(process.is_running() for process in processes), 30)
    assert len(list((tmp_path / "results").rglob("*.png"))) == 16
    assert server.run_directories == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_to_all_of_them_loses_no_request(
    start: Callable[..., Server], files: Files, number: signal.Signals
) -> None:
    """`pkill -HUP retouch` and service managers signal every process of the group; `make` repeats SIGTERM.

    The launcher passes its own signal on late, as on a busy machine.
    """
    server = start(fake_batch_ms=1000, max_batch_size=32)
    await ready(server)
    processes = server.processes()

    os.kill(engine := server.pid("engine-0"), signal.SIGSTOP)
    tasks = [asyncio.create_task(inpaint(server, files)) for _ in range(16)]
    await in_flight(server, 16)
    server.launcher.send_signal(signal.SIGSTOP)
    server.launcher.send_signal(number)
    for process in processes:
        process.send_signal(number)
    await asyncio.to_thread(wait_until, lambda: len(server.lines("draining")) == 2)
    await asyncio.sleep(1.1)
    for repeated in (number, signal.SIGCONT):
        server.launcher.send_signal(repeated)
    await asyncio.to_thread(wait_until, lambda: server.lines("ending"))
    os.kill(engine, signal.SIGCONT)
    assert await asyncio.gather(*tasks) == [200] * 16
    assert await asyncio.to_thread(server.launcher.wait, 30) == 0


async def test_a_second_signal_cuts_the_drain_short(start: Callable[..., Server]) -> None:
    server = start(workers=1, drain_delay_s=60)
    await ready(server, 1)
    server.launcher.send_signal(signal.SIGTERM)
    await asyncio.to_thread(wait_until, lambda: server.lines("draining"))
    await asyncio.sleep(1.1)  # a signal that comes sooner counts as the same request to end
    assert server.launcher.poll() is None
    server.launcher.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(server.launcher.wait, 30) == 1


async def test_processes_that_do_not_end_are_named_write_their_stacks_and_are_killed(
    start: Callable[..., Server],
) -> None:
    server = start(WITH_LITTLE_GRACE, workers=1, drain_timeout_s=0.1)
    await ready(server, 1)
    os.kill(server.pid("front_end-0"), signal.SIGSTOP)  # the engine process must wait for it
    server.launcher.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(server.launcher.wait, 60) == 1
    (line,) = server.lines("processes did not exit in time; they write their stacks and are killed")
    assert 1.1 <= float(str(line["after_s"])) < 20
    assert line["processes"] == ["engine-0", "front_end-0"]
    assert "in _run_engine_process" in server.log


def test_a_port_that_is_taken_stops_the_start(start: Callable[..., Server], free_port: int) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", free_port))
        taken.listen()
        server = start(port=free_port)
        assert server.launcher.wait(60) == 2
    assert "cannot listen" in server.log
