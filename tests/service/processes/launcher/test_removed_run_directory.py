"""A server whose run directory is removed while it runs: it serves on, replaces processes, and counts on."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import aiohttp
import httpx
import pytest

from tests.service.processes.launcher.real_processes import Files, Server, form, ready, sample_of
from tests.serving.ports import free_port
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow


def remove_run_directory(server: Server) -> None:
    """Remove it as `rm -r` does, which fails in the end if the server makes it again in the meantime."""
    (folder,) = server.run_directories
    try:
        shutil.rmtree(folder)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


def wait_for_run_directory(server: Server) -> list[Path]:
    wait_until(lambda: server.run_directories)
    return server.run_directories


def batches(metrics: str) -> float:
    return sample_of(metrics, r"^retouch_batch_size_count\{[^}]*\}")


async def test_processes_that_die_are_replaced_and_find_each_other(start: Callable[..., Server], files: Files) -> None:
    server = start(workers=1)
    await ready(server, 1)
    remove_run_directory(server)
    for name, begun in (("engine-0", 1), ("front_end-0", 2)):
        victim = server.pid(name)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda name=name, victim=victim: server.pid(name) != victim)
        await ready(server, begun)
        async with aiohttp.ClientSession(server.url) as session, session.post("/v1/inpaint", data=form(files)) as reply:
            assert reply.status == 200, await reply.text()
    assert server.served.terminate() == 0


@pytest.mark.parametrize("own_port", [False, True])
async def test_metrics_are_503_until_all_processes_have_stored_them_again(
    start: Callable[..., Server], files: Files, own_port: bool
) -> None:
    port = free_port() if own_port else 0
    server = start(workers=2, metrics_port=port)
    await ready(server, 2)

    def metrics() -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{port}/metrics" if own_port else f"{server.url}/metrics")

    async with aiohttp.ClientSession(server.url) as session, session.post("/v1/inpaint", data=form(files)) as reply:
        assert reply.status == 200, await reply.text()
    assert batches(metrics().text) == 1
    remove_run_directory(server)
    answers: list[httpx.Response] = []

    def complete() -> bool:
        answers.append(metrics())
        return answers[-1].status_code == 200

    wait_until(complete)
    *incomplete, after = answers
    assert all(answer.status_code == 503 and "return within seconds" in answer.text for answer in incomplete)
    assert batches(after.text) == 1, "the engine process, which has computed nothing since, has stored its counters"
    assert server.lines("the metrics are complete again")
    (folder,) = server.run_directories
    assert folder.stat().st_mode & 0o077 == 0
    assert server.served.terminate() == 0
    assert not server.run_directories


@pytest.mark.parametrize("own_port", [False, True])
async def test_metrics_stay_503_if_counters_of_a_process_that_had_ended_are_lost(
    start: Callable[..., Server], own_port: bool
) -> None:
    port = free_port() if own_port else 0
    server = start(workers=1, metrics_port=port)
    await ready(server, 1)
    victim = server.pid("engine-0")
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: server.pid("engine-0") != victim)
    await ready(server, 1)
    remove_run_directory(server)
    (folder,) = wait_for_run_directory(server)
    living = server.pid("engine-0"), server.pid("front_end-0")
    wait_until(lambda: all((folder / "metrics" / f"counter_{process}.db").exists() for process in living))
    async with aiohttp.ClientSession(server.url) as session:
        async with session.get(f"http://127.0.0.1:{port}/metrics" if own_port else "/metrics") as reply:
            assert reply.status == 503
            assert "restart the server" in await reply.text()
        async with session.get("/readyz") as reply:
            assert reply.status == 200, "pictures are still computed"
