"""A server whose run directory is removed while it runs: it serves on and replaces processes, without metrics."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable

import aiohttp
import httpx
import pytest

from tests.service.processes.launcher.real_processes import Files, Server, form, ready
from tests.serving.ports import free_port
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow


def remove_run_directory(server: Server) -> None:
    (folder,) = server.run_directories
    shutil.rmtree(folder)


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
def test_metrics_are_503_and_say_what_to_do(start: Callable[..., Server], own_port: bool) -> None:
    port = free_port() if own_port else 0
    server = start(workers=1, metrics_port=port)
    url = server.served.wait().url
    address = f"http://127.0.0.1:{port}/metrics" if own_port else f"{url}/metrics"
    assert httpx.get(address).status_code == 200
    remove_run_directory(server)
    answer = httpx.get(address)
    assert answer.status_code == 503, answer.text[:200]
    assert "restart the server" in answer.text
    assert httpx.get(f"{url}/readyz").status_code == 200, "pictures are still computed"
