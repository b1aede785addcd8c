"""The server process: it starts, drains on SIGTERM, saves what it promised, and exits with 0."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import httpx
import numpy as np
import pytest

from tests.service.web.raw_request import head_of
from tests.service.web.server_process import Answer, Files, keep_in_flight, post, process, ready
from tests.serving.image_files import png
from tests.serving.served_process import ServedProcess
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("workers", [0, 1])
def test_a_reply_that_is_read_slowly_arrives_whole_although_the_server_ends(tmp_path: Path, workers: int) -> None:
    picture = png(np.random.default_rng(0).integers(0, 256, (2000, 2400, 3), np.uint8))  # 14 MB, also when it is filled
    hole = np.pad(np.full((20, 20), 255, np.uint8), ((990, 990), (1190, 1190)))
    files = {"image": ("a.png", picture), "mask": ("m.png", png(hole[..., None]))}
    with ServedProcess(tmp_path, workers=workers) as served, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.connect(("127.0.0.1", urlsplit(served.url).port))
        request = httpx.Request("POST", f"{served.url}/v1/inpaint", files=files, headers={"Accept": "image/png"})
        connection.sendall(head_of(request) + request.read())
        reply, received = HTTPResponse(connection), 0
        reply.begin()
        began = time.monotonic()
        served.process.terminate()
        while piece := reply.read(65_536):
            received += len(piece)
            time.sleep(max(0.0, began + received / 2.5e6 - time.monotonic()))
        assert (reply.status, received) == (200, int(reply.headers["content-length"]))
        assert received > len(picture) / 2
        assert served.ended() == 0


@pytest.mark.parametrize("workers", ["0", "1"])
async def test_a_manifest_that_is_never_written_delays_neither_other_models_nor_the_shutdown(
    models_dir: Path, tmp_path: Path, files: Files, workers: str
) -> None:
    (models_dir / "aaa" / "1").mkdir(parents=True)  # the version that is read first
    os.mkfifo(models_dir / "aaa" / "1" / "manifest.json")
    with process(models_dir, tmp_path, workers=workers, model_poll_s="0.1") as (server, url):
        async with aiohttp.ClientSession(url) as session:
            await ready(session)
            assert (await post(session, files))[0] == 200

        def refusal() -> str:  # takes a while: a young version may be half written
            models = {model["name"]: model for model in httpx.get(f"{url}/v1/models").json()["models"]}
            return str(models["aaa"]["reason"]) if models.get("aaa", {}).get("state") == "refused" else ""

        await asyncio.to_thread(wait_until, refusal)
        assert "not a regular file" in await asyncio.to_thread(refusal)
        server.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.wait, 60) == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_a_server_on_an_address_of_ipv6_logs_where_it_is_found(tmp_path: Path, workers: int) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with ServedProcess(tmp_path, host="::1", workers=workers) as served:
        assert served.url.startswith("http://[::1]:")
        assert httpx.get(f"{served.url}/livez").status_code == 200


def test_an_idle_server_exits_0_on_sigint(models_dir: Path, tmp_path: Path) -> None:
    with process(models_dir, tmp_path) as (server, _):
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0


def test_a_second_signal_ends_a_server_that_is_stuck(models_dir: Path, tmp_path: Path) -> None:
    with ServedProcess(tmp_path, models_dir=models_dir, drain_delay_s=60) as served:
        served.process.terminate()
        served.process.terminate()  # `make` and service managers repeat SIGTERM at once; it counts as the same request
        wait_until(lambda: served.lines("draining"))
        time.sleep(1.1)
        assert served.process.poll() is None
        assert served.terminate() == 1


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
            answers: list[Answer] = []
            with suppress(aiohttp.ClientError):  # the socket may close before a request is refused
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
