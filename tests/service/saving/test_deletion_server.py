"""The real server with two front ends: promptly deleted results stay deleted, even when all processes are killed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.serving.key_files import add_key
from tests.serving.served_process import ServedProcess
from tests.serving.waiting import until, wait_until

Files = dict[str, tuple[str, bytes, str]]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("keys")]
SCOPES = ["inference", "results:read", "results:delete"]


class Deletions:
    """Clients' record of the server's answers: addresses and contents of results, and which are deleted."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.deleted: dict[str, bytes] = {}
        self.unsure: dict[str, bytes] = {}
        """Results whose deletion was requested and not answered."""

    async def client(self, http: httpx.AsyncClient, files: Files) -> None:
        """Make results until the server is killed, and delete every second one at once, through any front end."""
        for number in range(10_000):
            try:
                reply = await http.post("/v1/inpaint", files=files, headers={"Connection": "close"})
                if reply.status_code == 503:  # by a front end that outlives other processes
                    return
                location = reply.headers["location"]
                if number % 2:
                    self.kept[location] = reply.content
                    continue
                self.unsure[location] = reply.content
                gone = await http.delete(location, headers={"Connection": "close"})
                if gone.status_code == 503:
                    return
                assert gone.status_code in (202, 204), gone.text
                self.deleted[location] = self.unsure.pop(location)
                again = await http.get(location, headers={"Connection": "close"})
                assert again.status_code == 410, again.text
            except httpx.TransportError:
                return


def kill_all(launcher: int) -> None:
    """Kill the server's processes, the front ends first, so that none of them can drain."""
    parent = psutil.Process(launcher)
    for process in (*parent.children(recursive=True), parent):
        process.kill()


def holding(folder: Path, result_id: str) -> list[str]:
    """Return the files that are named after a result, also while folders are removed, for which rglob raises."""
    return [f"{within}/{name}" for within, _, names in os.walk(folder) for name in names if result_id in name]


@pytest.mark.parametrize("where", ["disk", "bucket"])
async def test_what_was_deleted_stays_deleted_when_every_process_is_killed(
    tmp_path: Path, files: Files, where: str, request: pytest.FixtureRequest
) -> None:
    bucket: Any = request.getfixturevalue("bucket") if where == "bucket" else None
    key = add_key(tmp_path / "keys.json", scopes=SCOPES)
    stranger = add_key(tmp_path / "keys.json", scopes=SCOPES)
    remote = {"results_url": "s3://results/shop", "s3_endpoint": f"http://127.0.0.1:{bucket.port}"} if bucket else {}
    deletions = Deletions()
    settings = {"workers": 2, "keys_file": tmp_path / "keys.json", "upload_timeout_s": 2, **remote}
    with ServedProcess(tmp_path, **settings) as served:
        async with httpx.AsyncClient(base_url=served.url, timeout=60, headers={"X-API-Key": key}) as http:
            clients = [asyncio.create_task(deletions.client(http, files)) for _ in range(4)]
            await until(lambda: len(deletions.deleted) >= 20 or any(client.done() for client in clients), 120)
            kill_all(served.process.pid)
            served.process.wait()
            await asyncio.gather(*clients)
        served.start()
        with httpx.Client(base_url=served.url, timeout=60) as http:
            for location, body in deletions.kept.items():
                reply = http.get(location, headers={"X-API-Key": key})
                assert (reply.status_code, reply.content == body) == (200, True), location
            for location in deletions.deleted:
                assert http.get(location, headers={"X-API-Key": key}).status_code == 410, location
                assert http.get(location, headers={"X-API-Key": stranger}).status_code == 404, location
                assert http.delete(location, headers={"X-API-Key": stranger}).status_code == 404, location
            for location, body in deletions.unsure.items():
                reply = http.get(location, headers={"X-API-Key": key})
                assert reply.status_code == 410 or (reply.status_code, reply.content) == (200, body), location
            gone = [location.rpartition("/")[2] for location in deletions.deleted]
            folders = [tmp_path / "results", *([bucket.folder] if bucket else [])]
            wait_until(lambda: not any(holding(folder, one) for folder in folders for one in gone))
            listed = http.get("/v1/results?limit=100", headers={"X-API-Key": key}).json()["results"]
            assert not {one["url"] for one in listed} & set(deletions.deleted)
            assert http.get("/v1/results", headers={"X-API-Key": stranger}).json()["results"] == []
        assert served.terminate() == 0
