"""Large pictures wait for memory without delaying small ones; metrics show the wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest

from engines.fake import FakeEngine
from engines.manifest import Manifest
from tests.serving import image_files
from tests.serving.local_server import Serve
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow

Files = dict[str, tuple[str, bytes, str]]
SIDE = 2000
ROOM_MB = 30.0
"""Half of `max_memory_mb`, for decoded pictures: many small ones, or a large one with its mask (38 MiB) alone."""


def large_files() -> Files:
    """A picture of 4 megapixels and its mask."""
    mask = np.zeros((SIDE, SIDE, 1), np.uint8)
    mask[:16, :16] = 255
    flat = image_files.png(np.full((SIDE, SIDE, 1), 90, np.uint8))
    return {"image": ("i.png", flat, "image/png"), "mask": ("m.png", image_files.png(mask), "image/png")}


class Slow:
    """Engines whose batches take `batch_s`, and begin when `go_on` is set."""

    def __init__(self, batch_s: float) -> None:
        self.batch_s, self.go_on = batch_s, threading.Event()

    def __call__(self, manifest: Manifest) -> FakeEngine:
        return FakeEngine(manifest, batch_s=self.batch_s, sleep=self._sleep)

    def _sleep(self, batch_s: float) -> None:
        assert self.go_on.wait(60)
        time.sleep(batch_s)


@contextmanager
def crowd(running: Any, files: Files, count: int, headers: dict[str, str]) -> Iterator[list[Future[httpx.Response]]]:
    """Send `count` requests at once, of which all but one wait for memory as long as no batch begins."""
    budget = running.service.pipeline.memory
    with running.client() as client, ThreadPoolExecutor(count) as pool:
        data = {"save": "false"}
        sent = [pool.submit(client.post, "/v1/inpaint", files=files, data=data, headers=headers) for _ in range(count)]
        wait_until(lambda: budget.waiting_requests == count - 1)
        yield sent


def memory_ms(reply: httpx.Response) -> float:
    stages = dict(part.split(";dur=") for part in reply.headers["server-timing"].split(", "))
    return float(stages["memory"])


def series(client: httpx.Client) -> dict[str, float]:
    """Return the metrics by name and labels."""
    lines = [line for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_a_small_picture_does_not_wait_for_the_memory_of_large_ones(serve: Serve, files: Files) -> None:
    running = serve(engines := Slow(0.4), max_memory_mb=2 * ROOM_MB)
    with crowd(running, large_files(), 6, {}) as sent, running.client() as client:
        engines.go_on.set()
        reply = client.post("/v1/inpaint", files=files)
        assert reply.status_code == 200
        assert running.service.pipeline.memory.waiting_requests >= 2, "most of the large ones still wait"
        replies = [one.result() for one in sent]
    assert memory_ms(reply) < 100
    assert [one.status_code for one in replies] == [200] * 6
    assert max(map(memory_ms, replies)) > 4 * 400
    assert running.service.pipeline.memory.granted_bytes == 0


def test_requests_of_large_pictures_leave_memory_to_others(serve: Serve, files: Files) -> None:
    running = serve(engines := Slow(0.2), max_memory_mb=2 * ROOM_MB, max_queue_size=6)
    with crowd(running, large_files(), 6, {}) as sent, running.client() as client:
        assert (running.service.admission.in_flight, running.service.admission.large_in_flight) == (6, 6)
        engines.go_on.set()
        assert client.post("/v1/inpaint", files=files).status_code == 200
        assert [one.result().status_code for one in sent] == [200] * 6
    wait_until(lambda: not running.service.admission.in_flight)
    assert running.service.admission.large_in_flight == 0


def test_the_wait_for_memory_can_be_seen_while_it_lasts_and_afterwards(serve: Serve) -> None:
    running = serve(engines := Slow(0.5), max_memory_mb=2 * ROOM_MB)
    with crowd(running, large_files(), 6, {}) as sent, running.client() as client:
        during = series(client)
        engines.go_on.set()
        assert during["retouch_memory_waiting"] > 1
        assert during["retouch_decoded_bytes"] == ROOM_MB * 2**20 * 7 / 8
        assert [one.result().status_code for one in sent] == [200] * 6
        after = series(client)
    assert after['retouch_stage_duration_seconds_count{stage="memory"}'] == 6
    assert (after["retouch_memory_waiting"], after["retouch_decoded_bytes"]) == (0, 0)


@pytest.mark.parametrize(
    ("headers", "settings", "status", "code"),
    [
        ({"X-Request-Timeout-Ms": "7500"}, {}, 504, "deadline_exceeded"),
        ({}, {"request_timeout_s": 7.5}, 503, "overloaded"),
    ],
)
def test_a_request_that_cannot_be_served_in_time_is_refused_early_with_a_time_to_retry(
    serve: Serve, headers: dict[str, str], settings: dict[str, float], status: int, code: str
) -> None:
    running = serve(engines := Slow(2.1), max_memory_mb=2 * ROOM_MB, **settings)
    with crowd(running, large_files(), 8, headers) as sent, running.client() as client:
        engines.go_on.set()
        replies = [one.result() for one in sent]
        metrics = series(client)
    refused = [reply for reply in replies if reply.status_code != 200]
    assert {reply.status_code for reply in replies} == {200, status}
    assert {reply.json()["code"] for reply in refused} == {code}
    told = [reply for reply in refused if "the queue for memory" in reply.json()["detail"]]
    assert len(told) >= 4, "7.5 s are enough for three, and the first one taught how long each takes"
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in told)
    assert max(reply.elapsed.total_seconds() for reply in told) < 7.2
    waits = metrics['retouch_stage_duration_seconds_count{stage="memory"}']
    assert waits == 8, "those that were refused waited, too"
