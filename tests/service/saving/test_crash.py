"""The real service is killed while it saves; the clients' record of promised results proves that none is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.served_process import ServedProcess
from tests.serving.waiting import until

Files = dict[str, tuple[str, bytes, str]]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("keys")]


async def ask_until_killed(served: ServedProcess, files: Files, ledger: dict[str, bytes], promises: int) -> None:
    """Let eight clients send requests, and kill the service once `promises` more results are promised."""
    goal = len(ledger) + promises

    async def client(http: httpx.AsyncClient) -> None:
        while True:
            try:
                reply = await http.post("/v1/inpaint", files=files)
            except httpx.TransportError:  # the service was killed
                return
            if reply.status_code == 200:
                ledger[reply.headers["location"]] = reply.content

    async with httpx.AsyncClient(base_url=served.url, timeout=30) as http:
        clients = [asyncio.create_task(client(http)) for _ in range(8)]
        await until(lambda: len(ledger) >= goal)
        served.kill()
        await asyncio.gather(*clients)


def check_all_there(served: ServedProcess, ledger: dict[str, bytes]) -> None:
    with httpx.Client(base_url=served.url, timeout=30) as http:
        for location, body in ledger.items():
            found = http.get(location)
            assert (found.status_code, found.content == body) == (200, True), location
            assert http.get(location, headers={"Accept": "application/json"}).json()["bytes"] == len(body)


async def test_nothing_that_was_promised_is_lost_when_the_service_is_killed_while_it_uploads(
    proxy: Any, bucket: Any, files: Files, tmp_path: Path
) -> None:
    ledger: dict[str, bytes] = {}
    served = ServedProcess(
        tmp_path, results_url="s3://results/shop", s3_endpoint=proxy.url, upload_timeout_s=5, spool_max_items=5000
    )
    proxy.become("slow")
    with served:
        for mood in ("failing", "gone", "good"):
            await ask_until_killed(served, files, ledger, 40)
            proxy.become(mood)
            served.start()
        check_all_there(served, ledger)
        assert served.terminate() == 0
    ids = {location.rpartition("/")[2] for location in ledger}
    assert len(ids) >= 120
    assert {f"shop/{i[:2]}/{i}{suffix}" for i in ids for suffix in (".png", ".json")} <= bucket.names
    assert not any((tmp_path / "results" / ".spool").iterdir()), "the spool is empty again"
    assert "test-secret" not in served.log


async def test_nothing_that_was_promised_is_lost_when_the_service_is_killed_while_it_saves_to_disk(
    files: Files, tmp_path: Path
) -> None:
    ledger: dict[str, bytes] = {}
    served = ServedProcess(tmp_path)
    with served:
        await ask_until_killed(served, files, ledger, 60)
        served.start()
        check_all_there(served, ledger)
        assert served.terminate() == 0
    assert len(list((tmp_path / "results").glob("??/*.json"))) >= len(ledger)


async def test_jobs_that_were_accepted_are_done_after_the_service_was_killed(files: Files, tmp_path: Path) -> None:
    later = {"Prefer": "respond-async"}
    with ServedProcess(tmp_path, fake_batch_ms=1000, max_batch_size=2) as slow:
        async with httpx.AsyncClient(base_url=slow.url, timeout=30) as http:
            replies = [await http.post("/v1/inpaint", files=files, headers=later) for _ in range(20)]
            assert {reply.status_code for reply in replies} == {202}
            locations = [reply.headers["location"] for reply in replies]
            await until_finished(http, locations[0])
            slow.kill()
    with ServedProcess(tmp_path, max_batch_size=2) as served:
        async with httpx.AsyncClient(base_url=served.url, timeout=30) as http:
            direct = (await http.post("/v1/inpaint", files=files, data={"save": "false"})).content
            for location in locations:
                job = await until_finished(http, location)
                assert job["status"] == "succeeded"
                assert (await http.get(job["result_url"])).content == direct
        assert served.terminate() == 0
    assert '"attempts": 2' in served.log, "it was killed before all were done"


async def until_finished(http: httpx.AsyncClient, location: str) -> dict[str, Any]:
    for _ in range(3000):
        job: dict[str, Any] = (await http.get(location)).json()
        if job["status"] not in ("queued", "running"):
            return job
        await asyncio.sleep(0.02)
    raise AssertionError(job)
