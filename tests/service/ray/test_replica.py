"""The server as Ray calls it, in the test's own event loop: a lifespan, calls, cancelled calls."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from engines.errors import DeviceLost
from engines.fake import FakeEngine
from engines.manifest import Manifest
from service.batching.backend import OpenBackend
from service.batching.local_backend import open_local_backend
from service.core.settings import Settings
from service.ledger.sqlite_file import LEDGER_FILE
from service.ray.proxy import RepeatOnLoss
from service.ray.replica import DeviceGone, Replica

Files = dict[str, tuple[str, bytes, str]]
Open = Callable[..., Any]


@pytest.fixture
def opened(models_dir: Path, tmp_path: Path) -> Open:
    """`async with opened(**settings) as (replica, client)`; leaving it is the replica's end."""

    def unchecked(_settings: Settings) -> None:
        """Leave the logs of all tests as they are."""

    @asynccontextmanager
    async def open_replica(
        open_backend: OpenBackend = open_local_backend, **changes: Any
    ) -> AsyncIterator[tuple[Replica, httpx.AsyncClient]]:
        folders = {"models_dir": models_dir, "results_dir": tmp_path / "results", "engine_cache_dir": tmp_path / "c"}
        replica = Replica(Settings.model_validate({"engine": "fake", **folders, **changes}), open_backend, unchecked)
        messages: asyncio.Queue[Message] = asyncio.Queue()
        sent: asyncio.Queue[Message] = asyncio.Queue()
        messages.put_nowait({"type": "lifespan.startup"})
        life = asyncio.ensure_future(replica({"type": "lifespan", "state": {}}, messages.get, sent.put))
        assert (await sent.get())["type"] == "lifespan.startup.complete"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(replica), base_url="http://localhost") as client:
            yield replica, client
            messages.put_nowait({"type": "lifespan.shutdown"})
            assert (await asyncio.wait_for(sent.get(), 30))["type"] == "lifespan.shutdown.complete"
            await life

    return open_replica


async def test_a_replica_has_started_when_its_models_are_loaded(opened: Open, files: Files) -> None:
    def slowly(_directory: Path, manifest: Manifest) -> FakeEngine:
        time.sleep(0.2)
        return FakeEngine(manifest)

    async with opened(partial(open_local_backend, open_model=slowly)) as (_, client):
        assert (await client.post("/v1/inpaint", files=files)).status_code == 200


async def test_a_replica_ends_when_its_jobs_are_done(opened: Open, files: Files) -> None:
    async with opened(fake_batch_ms=200) as (replica, client):
        job = await client.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async"})
        assert job.status_code == 202
        service = replica.app.service
        assert service is not None
        assert service.admission.in_flight == 1
    assert (service.admission.in_flight, service.drain.clean) == (0, True)
    assert len(list(service.settings.results_dir.rglob("*.png"))) == 1


async def test_a_job_whose_replica_is_lost_before_its_reply_is_recorded_once(opened: Open, files: Files) -> None:
    async with opened(fake_batch_ms=1) as (first, _), opened(fake_batch_ms=1) as (second, client):
        left = [first, second]

        async def rays_proxy(scope: Scope, receive: Receive, send: Send) -> None:
            await left.pop(0)(scope, receive, lost if left else send)

        async def lost(_message: Message) -> None:
            """Nothing of the first one's reply comes through."""

        proxy = httpx.ASGITransport(RepeatOnLoss(rays_proxy))
        async with httpx.AsyncClient(transport=proxy, base_url="http://localhost") as asking:
            accepted = await asking.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async"})
        assert (accepted.status_code, left) == (202, [])
        while (job := (await client.get(accepted.headers["location"])).json())["status"] in ("queued", "running"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert job["status"] == "succeeded"
        service = second.app.service
        assert service is not None
        folder = service.settings.results_dir
        with closing(sqlite3.connect(folder / LEDGER_FILE)) as ledger:
            assert ledger.execute("SELECT id FROM jobs").fetchall() == [(job["id"],)]
    assert len(list(folder.rglob("*.png"))) == 1
    assert not list((folder / ".jobs").iterdir())


async def test_a_call_that_is_cancelled_is_a_client_that_left(opened: Open, files: Files) -> None:
    async with opened(fake_batch_ms=300) as (replica, client):
        service = replica.app.service
        assert service is not None
        asked = asyncio.ensure_future(client.post("/v1/inpaint", files=files))
        while not service.admission.in_flight:  # noqa: ASYNC110 -- as above
            await asyncio.sleep(0.005)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert "retouch_cancelled_total 1.0" in (await client.get("/metrics")).text
        assert service.admission.in_flight == 0


async def test_a_replica_without_its_device_is_not_healthy(opened: Open) -> None:
    async with opened() as (replica, _):
        replica.check_health()
        service = replica.app.service
        assert service is not None
        service.backend.supervisor.device_lost = DeviceLost("gone")  # type: ignore[attr-defined] # a LocalBackend
        await asyncio.wait_for(service.backend.lost.wait(), 10)
        with pytest.raises(DeviceGone):
            replica.check_health()
