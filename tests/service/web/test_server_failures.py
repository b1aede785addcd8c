"""A server that cannot start, or loses its device, says so and exits with a status of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from service.lifecycle.drain import EXIT_DEVICE_LOST
from tests.service.web.server_process import Files, are_in_flight, process, ready
from tests.serving.waiting import until_it_answers

pytestmark = [pytest.mark.slow, pytest.mark.covers_processes]

LOSES_IT_WHILE_LOADING = """
import sys
from functools import partial
from engines.errors import DeviceLost
from engines.fake import FakeEngine, Raise
from service.batching.local_backend import open_local_backend
from service.web.server import run
from service.core.settings import load_settings

sys.exit(run(load_settings(), partial(open_local_backend, open_model=lambda _, manifest: FakeEngine(
    manifest, fault=lambda _: Raise(DeviceLost("the GPU context is lost"))))))
"""


async def test_a_server_that_loses_its_device_while_models_load_exits_with_that_status_too(
    models_dir: Path, tmp_path: Path
) -> None:
    with process(models_dir, tmp_path, command=[sys.executable, "-c", LOSES_IT_WHILE_LOADING]) as (server, _):
        assert await asyncio.to_thread(server.wait, 60) == EXIT_DEVICE_LOST


LOSES_ITS_DEVICE = """
import sys
import time
from functools import partial
from pathlib import Path
from engines.errors import DeviceLost
from engines.fake import FakeEngine, Raise
from service.batching.local_backend import open_local_backend
from service.web.server import run
from service.core.settings import load_settings

def wait(_):
    while not Path(sys.argv[1]).exists():
        time.sleep(0.01)

lost = Raise(DeviceLost("the GPU context is lost"))
sys.exit(run(load_settings(), partial(open_local_backend, open_model=lambda _, manifest: FakeEngine(
    manifest, batch_s=1.0, sleep=wait, fault=lambda feed: lost if feed["image"].any() else None))))
"""
"""Program of a server whose engine warms up on blank pictures, and loses the device on the first real one, once the
file exists that its argument names."""


async def test_a_server_that_loses_its_device_answers_503_and_exits_with_a_status_of_its_own(
    models_dir: Path, tmp_path: Path, files: Files
) -> None:
    loses = tmp_path / "loses"
    with process(models_dir, tmp_path, command=[sys.executable, "-c", LOSES_ITS_DEVICE, str(loses)]) as (server, url):
        async with aiohttp.ClientSession(url) as session:
            await ready(session)

            async def post() -> tuple[int, str]:
                data = aiohttp.FormData()
                for name, (filename, body, media_type) in files.items():
                    data.add_field(name, body, filename=filename, content_type=media_type)
                async with session.post("/v1/inpaint", data=data) as response:
                    return response.status, (await response.json())["code"]

            asked = [asyncio.create_task(post()) for _ in range(4)]
            await until_it_answers(lambda: are_in_flight(session, 4))
            loses.touch()
            answers = await asyncio.gather(*asked)
        assert await asyncio.to_thread(server.wait, 60) == EXIT_DEVICE_LOST
    assert {status for status, _ in answers} == {503}
    assert {code for _, code in answers} <= {"worker_lost", "shutting_down"}


def test_a_results_directory_that_cannot_be_used_stops_the_start(models_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "retouch", "serve", "--results-dir", str(tmp_path / "file" / "results")]
    started = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert started.returncode == 2
    assert "Traceback" not in started.stderr


def test_a_misspelt_setting_stops_the_start(models_dir: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "retouch", "serve"]
    environ = {**os.environ, "RETOUCH_PROT": "1"}
    started = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert started.returncode == 2
    assert "RETOUCH_PROT" in started.stderr
    assert "Traceback" not in started.stderr


def test_a_public_address_without_keys_stops_the_start(models_dir: Path, tmp_path: Path) -> None:
    options = ["--host", "0.0.0.0", "--models-dir", models_dir, "--results-dir", tmp_path / "results"]
    command = [sys.executable, "-m", "retouch", "serve", *map(str, options)]
    started = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert started.returncode == 2
    assert "--allow-anonymous" in started.stderr
