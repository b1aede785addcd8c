"""SIGHUP, nohup and a closed terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from tests.service.web.server_process import Files, keep_in_flight, process, ready

pytestmark = [pytest.mark.slow, pytest.mark.covers_processes]


def read_until(terminal: int, word: bytes) -> None:
    """Read from a terminal until the word has arrived."""
    seen = b""
    while word not in seen:
        seen += os.read(terminal, 65536)


@pytest.mark.parametrize("workers", ["0", "1"])
async def test_a_hangup_during_the_drain_cuts_nothing_short(
    models_dir: Path, tmp_path: Path, files: Files, workers: str
) -> None:
    """Shell and kernel both send SIGHUP, and systemd may send it after SIGTERM; it is no second request to end."""
    with process(models_dir, tmp_path, fake_batch_ms="2000", workers=workers) as (server, url):
        async with aiohttp.ClientSession(url) as session:
            await ready(session)
            asked = await keep_in_flight(session, files, 1)
            for _ in range(3):
                server.send_signal(signal.SIGHUP)
                await asyncio.sleep(0.2)
            assert {status for status, _ in await asyncio.gather(*asked)} == {200}
        assert await asyncio.to_thread(server.wait, 60) == 0


@pytest.mark.parametrize("workers", ["0", "1"])
async def test_a_server_under_nohup_outlives_a_hangup(models_dir: Path, tmp_path: Path, workers: str) -> None:
    command = ("nohup", sys.executable, "-m", "retouch", "serve")
    with process(models_dir, tmp_path, command, workers=workers) as (server, url):
        async with aiohttp.ClientSession(url) as session:
            await ready(session)
            server.send_signal(signal.SIGHUP)
            await asyncio.sleep(1)
            await ready(session)
        server.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.wait, 60) == 0


@pytest.mark.parametrize("workers", ["0", "1"])
async def test_a_server_whose_terminal_closes_finishes_what_is_inside(
    models_dir: Path, tmp_path: Path, files: Files, free_port: int, workers: str
) -> None:
    """Its log can no longer be written, which must not keep it from draining."""
    ours, terminal = pty.openpty()
    serve = [sys.executable, "-m", "retouch", "serve", f"--port={free_port}", "--engine=fake", "--fake-batch-ms=2000"]
    folders = [f"--models-dir={models_dir}", f"--results-dir={tmp_path / 'results'}", f"--workers={workers}"]
    folders += [f"--engine-cache-dir={tmp_path / 'cache'}"]
    server = await asyncio.to_thread(
        partial(
            subprocess.Popen, ["setsid", "--ctty", *serve, *folders], stdin=terminal, stdout=terminal, stderr=terminal
        )
    )
    os.close(terminal)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{free_port}") as session:
            await asyncio.to_thread(read_until, ours, b"serving")
            await ready(session)
            *_, asked = await keep_in_flight(session, files, 1)
            os.close(ours)
            status, location = await asked
        assert status == 200
        assert await asyncio.to_thread(server.wait, 60) == 0
    finally:
        server.kill()
        server.wait(10)
    assert list((tmp_path / "results").rglob(f"{location.rsplit('/', 1)[1]}.png"))
