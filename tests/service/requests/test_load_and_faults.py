"""The server under overload and with a failing engine: every request is answered, and no work is wasted."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import aiohttp
import httpx
import numpy as np
import pytest

from engines.base import Feed
from engines.errors import EngineDead, EngineFailed
from engines.fake import FakeEngine, Fault, Hang, Raise
from engines.manifest import Manifest
from service.lifecycle.end_limit import END_WITHIN_S
from tests.service.web.raw_request import head_of
from tests.serving.image_files import png
from tests.serving.waiting import until, wait_until

pytestmark = pytest.mark.slow

Files = dict[str, tuple[str, bytes, str]]
Serve = Callable[..., Any]


def slow(batch_s: float) -> Callable[[Manifest], FakeEngine]:
    return lambda manifest: FakeEngine(manifest, batch_s=batch_s)


class Faults:
    """The faults of the next inpaint batches after the warm-up, in order."""

    def __init__(self) -> None:
        self.armed = False
        self.waiting: list[Fault] = []

    def engine(self, manifest: Manifest) -> FakeEngine:
        return FakeEngine(manifest, fault=self._next)

    def _next(self, _feed: Feed) -> Fault | None:
        return self.waiting.pop(0) if self.waiting else None


def form(files: Files) -> aiohttp.FormData:
    data = aiohttp.FormData()
    for name, (filename, body, media_type) in files.items():
        data.add_field(name, body, filename=filename, content_type=media_type)
    return data


async def test_of_200_clients_that_hang_up_while_queued_at_most_5_percent_are_computed(
    serve: Serve, files: Files
) -> None:
    release = threading.Event()
    faults = Faults()
    running = serve(faults.engine)
    faults.waiting.append(Hang(release))
    before = running.executed
    async with running.async_client() as client:
        blocker = asyncio.create_task(client.post("/v1/inpaint", files=files))
        await until(lambda: running.executed == before + 1)
        leaving = [asyncio.create_task(client.post("/v1/inpaint", files=files)) for _ in range(200)]
        await until(lambda: len(running.service.pipeline.batcher) == 200, 30)
        for task in leaving:
            task.cancel()
        await asyncio.wait(leaving)
        await until(lambda: running.service.admission.in_flight == 1)
        release.set()
        assert (await blocker).status_code == 200
        assert (await client.post("/v1/inpaint", files=files)).status_code == 200
        assert "retouch_cancelled_total 200.0" in (await client.get("/metrics")).text
    assert running.executed - before - 2 <= 10


def test_a_client_that_hangs_up_after_a_large_body_is_seen_to_leave(serve: Serve) -> None:
    """uvicorn stops reading from a connection when much of a body arrives at once."""
    release, faults = threading.Event(), Faults()
    running = serve(faults.engine)
    image = png(np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8))
    request = httpx.Request("POST", f"{running.url}/v1/translate", files={"image": image})
    request.headers["Expect"] = "100-continue"
    with socket.create_connection((request.url.host, request.url.port or 80)) as leaving:
        leaving.sendall(head_of(request))
        assert leaving.recv(1024).startswith(b"HTTP/1.1 100")
        faults.waiting.append(Hang(release))
        (connection,) = running.server.server_state.connections
        connection.loop.call_soon_threadsafe(connection.data_received, request.read())
        wait_until(lambda: not faults.waiting)
    wait_until(lambda: running.service.admission.in_flight == 0, 20)  # long before the request's deadline
    release.set()


async def test_a_burst_of_2000_is_answered_200_or_503_and_the_service_goes_on(serve: Serve, files: Files) -> None:
    running = serve(slow(0.02), spool_max_items=4096)
    answers: Counter[tuple[int, bool]] = Counter()

    async def post(session: aiohttp.ClientSession) -> None:
        async with session.post("/v1/inpaint", data=form(files)) as response:
            await response.read()
            answers[response.status, "Retry-After" in response.headers] += 1

    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(running.url, connector=connector, timeout=timeout) as session:
        await asyncio.gather(*(post(session) for _ in range(2000)))
        assert sum(answers.values()) == 2000
        assert set(answers) <= {(200, False), (503, True)}, answers
        assert answers[200, False] >= 256
        await post(session)
    assert running.service.admission.in_flight == 0


async def test_requests_that_wait_together_share_batches(serve: Serve, files: Files) -> None:
    release, faults = threading.Event(), Faults()
    running = serve(faults.engine)
    faults.waiting.append(Hang(release))
    async with running.async_client() as client:
        sent = [asyncio.create_task(client.post("/v1/inpaint", files=files)) for _ in range(24)]
        await until(lambda: not faults.waiting and len(running.service.pipeline.batcher) >= 16)
        release.set()
        replies = await asyncio.gather(*sent)
    assert {reply.status_code for reply in replies} == {200}
    assert max(int(reply.headers["x-batch-size"]) for reply in replies) > 2


def test_an_engine_that_raises_fails_its_own_batch_only(serve: Serve, files: Files) -> None:
    faults = Faults()
    running = serve(faults.engine)
    faults.waiting.append(Raise(EngineFailed("out of memory")))
    with running.client() as client:
        failed = client.post("/v1/inpaint", files=files)
        assert (failed.status_code, failed.json()["code"]) == (500, "inference_failed")
        assert failed.json()["retryable"] is True
        assert client.get("/readyz").status_code == 200
        assert client.post("/v1/inpaint", files=files).status_code == 200
    assert running.service.admission.in_flight == 0


def test_an_engine_that_dies_is_loaded_afresh_and_its_request_is_told_to_retry(serve: Serve, files: Files) -> None:
    faults = Faults()
    running = serve(faults.engine)
    faults.waiting.append(Raise(EngineDead("the device fell off the bus")))
    with running.client() as client:
        lost = client.post("/v1/inpaint", files=files)
        assert (lost.status_code, lost.json()["code"]) == (503, "worker_lost")
        assert int(lost.headers["retry-after"]) >= 1
        wait_until(lambda: client.get("/readyz").status_code != 503)
        assert client.post("/v1/inpaint", files=files).status_code == 200
        assert "retouch_worker_restarts_total 1.0" in client.get("/metrics").text


async def test_an_engine_that_dies_takes_its_own_batch_with_it_and_not_the_queue(serve: Serve, files: Files) -> None:
    release = threading.Event()
    faults = Faults()
    running = serve(faults.engine, max_batch_size=2)
    faults.waiting += [Hang(release), Raise(EngineDead("the device fell off the bus"))]
    before, opened = running.executed, len(running.engines)
    async with running.async_client() as client:
        blocker = asyncio.create_task(client.post("/v1/inpaint", files=files))
        await until(lambda: running.executed == before + 1)
        waiting = [asyncio.create_task(client.post("/v1/inpaint", files=files)) for _ in range(24)]
        await until(lambda: len(running.service.pipeline.batcher) == 24)
        release.set()
        answers = Counter([reply.status_code for reply in await asyncio.gather(blocker, *waiting)])
    assert answers == {200: 23, 503: 2}
    assert len(running.engines) == opened + 1
    assert running.service.backend.supervisor.restarts == 1


async def test_a_worker_that_hangs_makes_the_service_unready_until_it_is_replaced(serve: Serve, files: Files) -> None:
    release = threading.Event()
    faults = Faults()
    opened, probed = threading.Event(), threading.Event()

    def open_slowly(manifest: Manifest) -> FakeEngine:
        assert not opened.is_set() or probed.wait(30)
        return faults.engine(manifest)

    running = serve(open_slowly, hang_timeout_s=1.0)
    opened.set()
    faults.waiting.append(Hang(release))
    async with running.async_client() as client:
        stuck = asyncio.create_task(client.post("/v1/inpaint", files=files))
        await until(lambda: bool(running.service.unready_reasons()))
        probe = await client.get("/readyz")
        assert probe.status_code == 503
        assert "worker" in probe.json()["reasons"][0]
        probed.set()
        reply = await stuck
        assert (reply.status_code, reply.json()["code"]) == (503, "worker_lost")
        await until(lambda: not running.service.unready_reasons())
        assert (await client.post("/v1/inpaint", files=files)).status_code == 200
    release.set()


async def test_a_request_whose_deadline_passes_in_the_queue_is_not_computed(serve: Serve, files: Files) -> None:
    release = threading.Event()
    faults = Faults()
    running = serve(faults.engine)
    faults.waiting.append(Hang(release))
    before = running.executed
    async with running.async_client() as client:
        blocker = asyncio.create_task(client.post("/v1/inpaint", files=files))
        await until(lambda: running.executed == before + 1)
        late = await client.post("/v1/inpaint", files=files, headers={"X-Request-Timeout-Ms": "50"})
        assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
        release.set()
        assert (await blocker).status_code == 200
    assert running.executed == before + 1


async def test_a_full_spool_refuses_new_work_and_loses_nothing(
    serve: Serve, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = threading.Event()
    running = serve(spool_max_items=3)
    disk = running.service.store._finder.storage._disk

    def held(write: Callable[..., None]) -> Callable[..., None]:
        def wait_and_write(*arguments: Any) -> None:
            stuck.wait(60)
            write(*arguments)

        return wait_and_write

    for name in ("write", "write_soon"):  # of one result, and of several that a writer takes at once
        monkeypatch.setattr(type(disk), name, held(getattr(type(disk), name)))
    async with running.async_client() as client:
        replies = [await client.post("/v1/inpaint", files=files) for _ in range(5)]
        assert [reply.status_code for reply in replies] == [200, 200, 200, 503, 503]
        assert replies[-1].json()["code"] == "spool_full"
        assert int(replies[-1].headers["retry-after"]) >= 1
        assert (await client.post("/v1/inpaint", files=files, data={"save": "false"})).status_code == 200
        for reply in replies[:3]:  # readable before they are durable
            assert (await client.get(reply.headers["location"])).content == reply.content
        stuck.set()
        await until(lambda: running.service.store.pending == 0)
        assert (await client.post("/v1/inpaint", files=files)).status_code == 200


async def test_draining_finishes_what_is_inside_and_refuses_what_comes(serve: Serve, files: Files) -> None:
    release = threading.Event()
    faults = Faults()
    running = serve(faults.engine)
    faults.waiting.append(Hang(release))
    before = running.executed
    async with running.async_client() as client:
        inside = asyncio.create_task(client.post("/v1/inpaint", files=files))
        await until(lambda: running.executed == before + 1)
        running.server.handle_exit(15, None)
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/livez")).status_code == 200
        refused = await client.post("/v1/inpaint", files=files)
        assert (refused.status_code, refused.json()["code"]) == (503, "shutting_down")
        release.set()
        assert (await inside).status_code == 200
        await until(lambda: not running.thread.is_alive())
    assert not running.server.force_exit


@pytest.mark.parametrize("drains", [True, False])
def test_every_end_is_limited_once(serve: Serve, *, drains: bool) -> None:
    running, limits = serve(drain_timeout_s=7.0), list[float]()
    running.server.limit_end = limits.append
    if drains:
        running.server.handle_exit(15, None)
        wait_until(lambda: not running.thread.is_alive())
    else:
        running.stop()
    assert limits == [7.0 + END_WITHIN_S]
