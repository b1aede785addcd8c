"""The result cache over HTTP: identical requests are computed once, in one process or two, while the result exists."""

from __future__ import annotations

import asyncio
import errno
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engines.fake import FakeEngine, Hang
from engines.manifest import Manifest
from service.ledger.sqlite_file import LEDGER_FILE
from service.repeats.result_cache import ResultCache
from service.saving.local_disk.disk_state import INCOMING
from tests.serving.held_ledger import ledger_held
from tests.serving.tensor_specs import image, latent, mask, output
from tests.serving.waiting import wait_until

Serve = Callable[..., Any]
Files = dict[str, tuple[str, bytes, str]]
PATH = "/v1/inpaint"


class BlockedEngine:
    """An engine whose batches wait at a gate once `hold` is set."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.hold = False

    def engine(self, manifest: Manifest) -> FakeEngine:
        return FakeEngine(manifest, fault=lambda _feed: Hang(self.gate) if self.hold else None)


async def waiting(running: Any, wanted: int) -> None:
    """Wait until `wanted` requests wait for results that are being looked up or computed."""
    cache: ResultCache = running.service.run.__self__
    for _ in range(6000):
        if cache.waiting == wanted:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{cache.waiting} wait, not {wanted}")


def test_an_identical_request_gets_the_stored_result_and_another_its_own(serve: Serve, files: Files) -> None:
    running = serve(cache_entries=100)
    before = running.executed
    with running.client() as client:
        first, again = (client.post(PATH, files=files) for _ in range(2))
        assert (first.headers["cache-status"], again.headers["cache-status"]) == (
            "retouch; fwd=uri-miss; stored",
            "retouch; hit",
        )
        assert (first.content, first.headers["location"]) == (again.content, again.headers["location"])
        for name in ("x-model", "x-engine", "x-mask-coverage", "content-type"):
            assert first.headers[name] == again.headers[name]
        assert running.executed == before + 1
        for data in ({"quality": "7"}, {"format": "jpeg"}, {"strategy": "whole"}):
            assert "hit" not in client.post(PATH, files=files, data=data).headers["cache-status"]
        assert running.executed == before + 4
        metrics = client.get("/metrics").text
    assert 'retouch_cache_total{outcome="hit"} 1.0' in metrics
    assert 'retouch_cache_total{outcome="miss"} 4.0' in metrics


def test_equivalent_requests_are_identical(serve: Serve, files: Files) -> None:
    with serve(cache_entries=100).client() as client:
        location = client.post(PATH, files=files).headers["location"]
        for data in ({"model": "photos"}, {"model": "photos/1"}, {"save": "true"}, {"seed": "7"}):
            assert client.post(PATH, files=files, data=data).headers.get("location") == location, data


def test_another_process_and_a_restart_find_what_was_stored(serve: Serve, files: Files) -> None:
    one, other = serve(cache_entries=100), serve(cache_entries=100)
    with one.client() as client:
        location = client.post(PATH, files=files).headers["location"]
    one.stop()
    with other.client() as client:
        again = client.post(PATH, files=files)
    assert (again.headers["cache-status"], again.headers["location"]) == ("retouch; hit", location)


def test_a_request_right_after_the_reply_finds_the_result_that_is_not_in_the_ledger_yet(
    serve: Serve, files: Files, tmp_path: Path
) -> None:
    running = serve(cache_entries=100)
    before = running.executed
    other = sqlite3.connect(tmp_path / "results" / LEDGER_FILE, isolation_level=None)
    with running.client() as client, closing(other):
        other.execute("BEGIN IMMEDIATE")  # locks out all other writers
        replies = [client.post(PATH, files=files) for _ in range(2)]
        other.execute("ROLLBACK")
    assert [reply.headers["cache-status"] for reply in replies] == ["retouch; fwd=uri-miss; stored", "retouch; hit"]
    assert replies[0].headers["location"] == replies[1].headers["location"]
    assert running.executed == before + 1


def test_a_result_that_was_deleted_is_computed_again(serve: Serve, files: Files, tmp_path: Path) -> None:
    running = serve(cache_entries=100)
    with running.client() as client:
        client.post(PATH, files=files)
        assert running.service.store.flush(10) == 0
        for shard in (tmp_path / "results").glob("??"):
            shutil.rmtree(shard)
        again = client.post(PATH, files=files)
        assert again.headers["cache-status"] == "retouch; fwd=uri-miss; stored"
        assert client.get(again.headers["location"]).content == again.content


def test_while_the_disk_fails_hits_are_sent_and_misses_are_neither_promised_nor_cached(
    serve: Serve, files: Files, tmp_path: Path
) -> None:
    running = serve(cache_entries=100)
    other = {"quality": "7"}
    with running.client() as client:
        first = client.post(PATH, files=files)
        wait_until(lambda: not running.service.store.pending)
        incoming = running.service.settings.results_dir / INCOMING
        incoming.rename(tmp_path / "aside")
        incoming.write_bytes(b"")  # a file in place of the folder: the probe of the disk fails
        running.service.store.disk.record_failure(OSError(errno.ENOSPC, "No space left on device"))
        again, refused = client.post(PATH, files=files), client.post(PATH, files=files, data=other)
        assert again.headers["location"] == first.headers["location"]
        assert refused.json()["code"] == "storage_unavailable"
        incoming.unlink()
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert client.post(PATH, files=files, data=other).headers["cache-status"] == "retouch; fwd=uri-miss; stored"


def test_unsaved_results_are_not_cached_and_a_server_without_cache_compares_nothing(serve: Serve, files: Files) -> None:
    running = serve(cache_entries=100)
    with running.client() as client:
        replies = [client.post(PATH, files=files, data={"save": "false"}) for _ in range(2)]
        assert [reply.headers["cache-status"] for reply in replies] == ["retouch; fwd=bypass"] * 2
        assert "retouch_cache_total{" not in client.get("/metrics").text, "no look-up that could hit or miss"
    with serve().client() as client:
        replies = [client.post(PATH, files=files) for _ in range(2)]
        assert not any("cache-status" in reply.headers for reply in replies)
        assert replies[0].headers["location"] != replies[1].headers["location"]


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "first"}])
async def test_identical_requests_in_flight_are_computed_once_even_if_the_first_client_disconnects(
    serve: Serve, files: Files, headers: dict[str, str]
) -> None:
    blocked = BlockedEngine()
    running = serve(blocked.engine, cache_entries=100)
    blocked.hold = True
    before = running.executed
    async with running.async_client() as client:
        leader = asyncio.create_task(client.post(PATH, files=files, headers=headers))
        await waiting(running, 1)
        followers = [asyncio.create_task(client.post(PATH, files=files)) for _ in range(4)]
        await waiting(running, 5)
        leader.cancel()
        await waiting(running, 4)
        blocked.gate.set()
        replies = [await one for one in followers]
    assert {reply.status_code for reply in replies} == {200}
    assert len({(reply.content, reply.headers["location"]) for reply in replies}) == 1
    assert running.executed == before + 1


async def test_a_request_that_joins_a_job_gets_its_result_when_no_later_run_of_the_job_can_delete_it(
    serve: Serve, files: Files, tmp_path: Path
) -> None:
    blocked = BlockedEngine()
    running = serve(blocked.engine, cache_entries=100)
    blocked.hold = True
    async with running.async_client() as client:
        job = (await client.post(PATH, files=files, headers={"Prefer": "respond-async"})).headers["location"]
        await waiting(running, 1)
        follower = asyncio.create_task(client.post(PATH, files=files))
        await waiting(running, 2)
        with ledger_held(tmp_path / "results"):
            blocked.gate.set()
            await waiting(running, 0)
            done, _ = await asyncio.wait([follower], timeout=0.5)
            assert not done
        reply = await follower
        entered = ledger_rows(tmp_path / "results", "SELECT about FROM known_results")
        assert reply.headers["location"].rpartition("/")[2] in str(entered)
        assert reply.headers["cache-status"] == "retouch; fwd=uri-miss; collapsed"
        for _ in range(600):
            if (ended := (await client.get(job)).json())["status"] == "succeeded":
                break
            await asyncio.sleep(0.01)
        assert ended["result_url"] == reply.headers["location"]


def ledger_rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / LEDGER_FILE)) as ledger:
        return ledger.execute(query).fetchall()


async def test_a_request_with_more_time_outlives_the_deadline_of_the_one_it_joined(serve: Serve, files: Files) -> None:
    blocked = BlockedEngine()
    running = serve(blocked.engine, cache_entries=100)
    blocked.hold = True
    async with running.async_client() as client:
        hasty = asyncio.create_task(client.post(PATH, files=files, headers={"X-Request-Timeout-Ms": "2000"}))
        await waiting(running, 1)
        patient = asyncio.create_task(client.post(PATH, files=files))
        assert (await hasty).status_code == 504
        blocked.gate.set()
        assert (await patient).status_code == 200


def test_a_model_with_latents_is_run_again_unless_a_seed_is_given(
    serve: Serve, files: Files, models_dir: Path, add_model: Callable[..., Path]
) -> None:
    add_model(models_dir, "drawing", "inpaint", inputs=[image(), mask(), latent()], output=output())
    with serve(cache_entries=100).client() as client:
        asked = {"model": "drawing"}
        for _ in range(2):
            assert client.post(PATH, files=files, data=asked).headers["cache-status"] == "retouch; fwd=bypass"
        replies = [client.post(PATH, files=files, data={**asked, "seed": "7"}) for _ in range(2)]
        assert [reply.headers["cache-status"][:12] for reply in replies] == ["retouch; fwd", "retouch; hit"]
        assert {reply.headers["x-seed"] for reply in replies} == {"7"}
