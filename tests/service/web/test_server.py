"""The process: it starts, drains on SIGTERM, saves what it promised, and exits with 0."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from service.lifecycle.drain import EXIT_DEVICE_LOST

Files = dict[str, tuple[str, bytes, str]]
Answer = tuple[int, str]
"""Status; where the result is, or the problem's code."""


@contextmanager
def process(
    models_dir: Path,
    tmp_path: Path,
    command: Sequence[str] = (sys.executable, "-m", "retouch", "serve"),
    **settings: str,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    environ = {
        **os.environ,
        "RETOUCH_PORT": "0",
        "RETOUCH_ENGINE": "fake",
        "RETOUCH_MODELS_DIR": str(models_dir),
        "RETOUCH_RESULTS_DIR": str(tmp_path / "results"),
        "RETOUCH_ENGINE_CACHE_DIR": str(tmp_path / "cache"),
        **{f"RETOUCH_{name.upper()}": value for name, value in settings.items()},
    }
    server = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        url = next(found[1] for line in server.stderr if (found := re.search(r'"url": "(http[^"]+)"', line)))
        yield server, url
    finally:
        server.kill()
        server.wait(10)
        assert server.stderr is not None
        server.stderr.close()


async def ready(session: aiohttp.ClientSession, wanted: int = 200) -> None:
    """Return when /readyz answers with that status."""
    end = time.monotonic() + 20
    while True:
        async with session.get("/readyz") as response:
            if response.status == wanted:
                return
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


def read_until(terminal: int, word: bytes) -> None:
    """Read what is written there until the word comes."""
    seen = b""
    while word not in seen:
        seen += os.read(terminal, 65536)


async def post(session: aiohttp.ClientSession, files: Files) -> Answer:
    data = aiohttp.FormData()
    for name, (filename, body, media_type) in files.items():
        data.add_field(name, body, filename=filename, content_type=media_type)
    async with session.post("/v1/inpaint", data=data) as response:
        await response.read()
        if response.status == 200:
            return 200, response.headers["Location"]
        return response.status, (await response.json())["code"]


async def keep_in_flight(session: aiohttp.ClientSession, files: Files, wanted: int) -> list[asyncio.Task[Answer]]:
    """Requests of which so many are in the server now; a busy machine answers some before the last one has come in."""
    tasks: list[asyncio.Task[Answer]] = []
    for _ in range(2000):
        missing = wanted - sum(not task.done() for task in tasks)
        tasks += [asyncio.create_task(post(session, files)) for _ in range(missing)]
        async with session.get("/metrics") as response:
            if re.search(rf"^retouch_requests_in_flight {wanted}\b", await response.text(), re.MULTILINE):
                return tasks
        await asyncio.sleep(0.01)
    raise AssertionError(f"there were never {wanted} in flight")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_to_end_with_64_in_flight_answers_and_saves_all_64_and_exits_0(
    models_dir: Path, tmp_path: Path, files: Files, number: signal.Signals
) -> None:
    with process(models_dir, tmp_path, fake_batch_ms="500", max_batch_size="64") as (server, url):
        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0)) as session:
            await ready(session)
            tasks = await keep_in_flight(session, files, 64)
            server.send_signal(number)
            replies = await asyncio.gather(*tasks)
        assert await asyncio.to_thread(server.wait, 60) == 0
    assert {status for status, _ in replies} == {200}
    promised = {location.rsplit("/", 1)[1] for _, location in replies}
    assert len(promised) == len(tasks) >= 64
    saved = {path.stem for path in (tmp_path / "results").rglob("*.png")}
    sidecars = {path.stem for path in (tmp_path / "results").rglob("*.json")}
    assert promised == saved == sidecars


@pytest.mark.parametrize("workers", ["0", "1"])
async def test_a_manifest_that_nobody_writes_holds_up_neither_the_other_models_nor_the_end(
    models_dir: Path, tmp_path: Path, files: Files, workers: str
) -> None:
    (models_dir / "aaa" / "1").mkdir(parents=True)  # the first that is looked at
    os.mkfifo(models_dir / "aaa" / "1" / "manifest.json")
    with process(models_dir, tmp_path, workers=workers, model_poll_s="0.1") as (server, url):
        async with aiohttp.ClientSession(url) as session:
            await ready(session)
            assert (await post(session, files))[0] == 200
            async with session.get("/v1/models") as response:
                models = {model["name"]: model for model in (await response.json())["models"]}
        assert models["aaa"]["state"] == "refused"
        assert "no regular file" in models["aaa"]["reason"]
        server.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.wait, 60) == 0


def test_an_idle_server_exits_0_on_sigint(models_dir: Path, tmp_path: Path) -> None:
    with process(models_dir, tmp_path) as (server, _):
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0


def test_a_second_signal_ends_a_server_that_is_stuck(models_dir: Path, tmp_path: Path) -> None:
    with process(models_dir, tmp_path, drain_delay_s="60") as (server, _):
        server.send_signal(signal.SIGTERM)
        assert server.stderr is not None
        assert any('"draining"' in line for line in server.stderr)  # two signals that come at once are one
        assert server.poll() is None
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 1


@pytest.mark.parametrize("workers", ["0", "1"])
async def test_a_hangup_during_the_drain_cuts_nothing_short(
    models_dir: Path, tmp_path: Path, files: Files, workers: str
) -> None:
    """A shell and the kernel both send one, and systemd can send it behind SIGTERM: it is no second wish to end."""
    with process(models_dir, tmp_path, fake_batch_ms="2000", workers=workers) as (server, url):
        async with aiohttp.ClientSession(url) as session:
            await ready(session)
            asked = asyncio.create_task(post(session, files))
            await asyncio.sleep(0.5)
            for _ in range(3):
                server.send_signal(signal.SIGHUP)
                await asyncio.sleep(0.2)
            assert (await asked)[0] == 200
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
    """No line of its log can be written any more, which must not keep it from ending well."""
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
            asked = asyncio.create_task(post(session, files))
            await asyncio.sleep(0.5)
            os.close(ours)
            status, location = await asked
        assert status == 200
        assert await asyncio.to_thread(server.wait, 60) == 0
    finally:
        server.kill()
        server.wait(10)
    assert list((tmp_path / "results").rglob(f"{location.rsplit('/', 1)[1]}.png"))


@pytest.mark.parametrize("workers", ["0", "1"])
async def test_work_is_taken_until_the_delay_has_passed_while_readyz_says_503(
    models_dir: Path, tmp_path: Path, files: Files, workers: str
) -> None:
    with process(models_dir, tmp_path, drain_delay_s="5", workers=workers) as (server, url):
        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(force_close=True)) as session:
            await ready(session)
            signalled = time.monotonic()
            server.send_signal(signal.SIGTERM)
            await ready(session, 503)
            assert time.monotonic() < signalled + 5
            answers = []
            with suppress(aiohttp.ClientError):  # the socket closed before somebody was refused
                while not answers or answers[-1][0] == 200:
                    answers.append(await post(session, files))
                    await asyncio.sleep(0.1)
            refused = time.monotonic()
        assert await asyncio.to_thread(server.wait, 60) == 0
    assert answers[0][0] == 200
    assert {code for status, code in answers if status != 200} <= {"shutting_down"}
    assert refused >= signalled + 5


async def test_a_drain_that_takes_too_long_answers_503_and_exits_1(
    models_dir: Path, tmp_path: Path, files: Files
) -> None:
    settings = {"fake_batch_ms": "700", "max_batch_size": "1", "drain_timeout_s": "1"}
    with process(models_dir, tmp_path, **settings) as (server, url):
        async with aiohttp.ClientSession(url) as session:
            await ready(session)
            tasks = await keep_in_flight(session, files, 8)
            started = time.monotonic()
            server.send_signal(signal.SIGTERM)
            answers = await asyncio.gather(*tasks)
        assert await asyncio.to_thread(server.wait, 60) == 1
    assert {status for status, _ in answers} == {200, 503}
    assert {code for status, code in answers if status == 503} == {"shutting_down"}
    assert time.monotonic() - started < 8


LOSES_IT_WHILE_LOADING = """
import sys
from functools import partial
from engines.errors import DeviceLost
from engines.fake import FakeEngine, Raise
from service.batching.local_backend import open_engine_room
from service.web.server import run
from service.core.settings import load_settings

sys.exit(run(load_settings(), partial(open_engine_room, open_model=lambda _, manifest: FakeEngine(
    manifest, fault=lambda _: Raise(DeviceLost("the GPU context is lost"))))))
"""


async def test_a_server_that_loses_its_device_while_models_load_exits_with_that_status_too(
    models_dir: Path, tmp_path: Path
) -> None:
    with process(models_dir, tmp_path, command=[sys.executable, "-c", LOSES_IT_WHILE_LOADING]) as (server, _):
        assert await asyncio.to_thread(server.wait, 60) == EXIT_DEVICE_LOST


LOSES_ITS_DEVICE = """
import sys
from functools import partial
from engines.errors import DeviceLost
from engines.fake import FakeEngine, Raise
from service.batching.local_backend import open_engine_room
from service.web.server import run
from service.core.settings import load_settings

lost = Raise(DeviceLost("the GPU context is lost"))
sys.exit(run(load_settings(), partial(open_engine_room, open_model=lambda _, manifest: FakeEngine(
    manifest, batch_s=0.5, fault=lambda feed: lost if feed["image"].any() else None))))
"""
"""A server whose engine warms up on blank pictures and loses the device on the first real one."""


async def test_a_server_that_loses_its_device_answers_503_and_exits_with_a_status_of_its_own(
    models_dir: Path, tmp_path: Path, files: Files
) -> None:
    with process(models_dir, tmp_path, command=[sys.executable, "-c", LOSES_ITS_DEVICE]) as (server, url):
        async with aiohttp.ClientSession(url) as session:
            await ready(session)

            async def post() -> tuple[int, str]:
                data = aiohttp.FormData()
                for name, (filename, body, media_type) in files.items():
                    data.add_field(name, body, filename=filename, content_type=media_type)
                async with session.post("/v1/inpaint", data=data) as response:
                    return response.status, (await response.json())["code"]

            answers = await asyncio.gather(*(post() for _ in range(4)))
        assert await asyncio.to_thread(server.wait, 60) == EXIT_DEVICE_LOST
    assert {status for status, _ in answers} == {503}
    assert {code for _, code in answers} <= {"worker_lost", "shutting_down"}


def test_a_results_directory_that_cannot_be_used_stops_the_start(models_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "retouch", "serve", "--results-dir", str(tmp_path / "file" / "results")]
    started = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert started.returncode == 2
    assert "Traceback" not in started.stderr


def test_a_metrics_port_that_is_taken_stops_the_start(models_dir: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = {"metrics_port": str(taken.getsockname()[1])}
        with process(models_dir, tmp_path, **settings) as (server, _):
            assert server.wait(60) == 1


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
