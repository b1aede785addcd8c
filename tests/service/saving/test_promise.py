"""With `--promise store` a reply waits for the bucket, so that its result outlives the host."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.core.settings import Settings, SettingsInvalid
from service.saving import promise
from service.saving.assembly import open_storage
from tests.serving.backing.s3_server import KEY, SECRET, Bucket
from tests.serving.local_server import Running, Serve
from tests.serving.served_process import ServedProcess
from tests.serving.waiting import until, wait_until

pytestmark = pytest.mark.slow
PATH = "/v1/inpaint"
Files = dict[str, tuple[str, bytes, str]]


def promising(port: int) -> dict[str, Any]:
    """Return settings for a bucket at this port."""
    endpoint = f"http://127.0.0.1:{port}"
    return {"results_url": "s3://results/promised", "s3_endpoint": endpoint, "promise": "store"}


@pytest.fixture(autouse=True)
def margin_s(monkeypatch: pytest.MonkeyPatch) -> float:
    """Let a refusal come 10 s before the deadline, in place of 0.25 s, which a busy machine may take to answer."""
    monkeypatch.setattr(promise, "_REPLY_MARGIN_S", 10.0)
    monkeypatch.setattr(promise, "_REPLY_MARGIN_SHARE", 1.0)
    return 10.0


def waiting_replies(running: Running) -> int:
    """Return the number of results whose replies wait, or waited until they were refused, for the storage."""
    return sum(bool(one.on_saved) for one in running.service.store._backlog.all_unsaved())


@pytest.fixture
def served(serve: Serve, proxy: Any, keys: None) -> Running:
    return serve(**promising(proxy.port))


@pytest.fixture
def http(served: Running) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def test_a_promised_result_outlives_a_server_that_is_killed_with_its_disk(
    tmp_path: Path, models_dir: Path, bucket: Any, files: Files
) -> None:
    def server(name: str) -> ServedProcess:
        home = tmp_path / name
        home.mkdir()
        environ = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        return ServedProcess(home, environ, models_dir=models_dir, **promising(bucket.port))

    promised: dict[str, bytes] = {}
    with server("first") as first:
        for _ in range(5):
            reply = httpx.post(f"{first.url}{PATH}", files=files, timeout=60.0)
            assert "save;dur=" in reply.headers["server-timing"]
            promised[reply.headers["location"]] = reply.content
        first.kill()
        shutil.rmtree(first.folder)
    with server("second") as second:
        for location, body in promised.items():
            assert httpx.get(f"{second.url}{location}").content == body


def test_while_the_storage_is_unavailable_nothing_is_promised_and_nothing_is_lost(
    served: Running, http: httpx.Client, proxy: Any, bucket: Any, files: Files, margin_s: float
) -> None:
    proxy.become("gone")
    sent = time.monotonic()
    waited = http.post(PATH, files=files, headers={"X-Request-Timeout-Ms": f"{(3.0 + margin_s) * 1e3:.0f}"})
    assert time.monotonic() - sent < 3.0 + margin_s
    assert (waited.status_code, waited.json()["code"]) == (503, "storage_unavailable")
    assert "location" not in waited.headers
    assert int(waited.headers["retry-after"]) >= 1
    assert http.post(PATH, files=files, data={"save": "false"}).status_code == 200

    with ThreadPoolExecutor() as threads:
        one = threads.submit(http.post, PATH, files=files)
        wait_until(lambda: waiting_replies(served) == 2 and served.service.store.failing_s > 1.0)
        computed = served.executed
        others = [http.post(PATH, files=files, headers={"Idempotency-Key": f"key-{n}"}) for n in range(3)]
        assert {(reply.status_code, reply.json()["code"]) for reply in others} == {(503, "storage_unavailable")}
        assert served.executed == computed, "while one waits, others are refused before they are computed"
        assert bucket.names == set()
        proxy.become("good")
        reply = one.result()
    assert http.get(reply.headers["location"]).content == reply.content
    wait_until(lambda: len([name for name in bucket.names if name.endswith(".png")]) == 2)  # also a refused one
    again = http.post(PATH, files=files, headers={"Idempotency-Key": "key-0"})
    assert (again.status_code, "idempotency-replayed" in again.headers) == (200, False)
    served.stop()
    assert served.service.drain.unsaved == 0


def test_a_job_ends_when_its_result_is_stored_and_waits_for_an_unavailable_storage(
    http: httpx.Client, proxy: Any, bucket: Any, files: Files
) -> None:
    proxy.become("gone")
    jobs = [http.post(PATH, files=files, headers={"Prefer": "respond-async"}).headers["location"] for _ in range(3)]
    time.sleep(2.0)
    assert {http.get(job).json()["status"] for job in jobs} <= {"queued", "running"}
    proxy.become("good")
    wait_until(lambda: {http.get(job).json()["status"] for job in jobs} == {"succeeded"})
    for job in jobs:
        name = http.get(job).json()["result_url"].rpartition("/")[2]
        assert f"promised/{name[:2]}/{name}.png" in bucket.names


@pytest.mark.parametrize("end", ["killed", "terminated"])
def test_a_job_whose_server_ends_while_the_storage_is_unavailable_ends_when_its_result_is_stored(
    tmp_path: Path, models_dir: Path, bucket: Bucket, files: Files, end: str
) -> None:
    environ = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    settings = {**promising(bucket.port), "drain_timeout_s": 1, "models_dir": models_dir}
    bucket.stop()
    with ServedProcess(tmp_path, environ, **settings) as server:
        accepted = httpx.post(f"{server.url}{PATH}", files=files, headers={"Prefer": "respond-async"}, timeout=60.0)

        def job() -> dict[str, Any]:
            found: dict[str, Any] = httpx.get(f"{server.url}{accepted.headers['location']}").json()
            return found

        wait_until(lambda: httpx.get(f"{server.url}/v1/results").json()["results"])
        for restart in range(1, 3):
            server.kill() if end == "killed" else server.terminate()
            server.start()
            wait_until(
                lambda so_often=restart: len(server.lines("job reuses the results of an earlier run")) == so_often
            )
            time.sleep(1.0)
            assert job()["status"] == "queued"
        bucket.start()
        wait_until(lambda: job()["status"] == "succeeded")
        name = job()["result_url"].rpartition("/")[2]
        assert bucket.names == {f"promised/{name[:2]}/{name}.{suffix}" for suffix in ("png", "json")}
        assert httpx.get(f"{server.url}{job()['result_url']}").status_code == 200


def test_a_request_that_joined_another_goes_on_when_that_one_has_no_time_left(
    serve: Serve, proxy: Any, keys: None, files: Files, margin_s: float
) -> None:
    running = serve(**promising(proxy.port), cache_entries=10)
    proxy.become("gone")
    brief = {"X-Request-Timeout-Ms": f"{(1.5 + margin_s) * 1e3:.0f}"}
    with running.client() as client, ThreadPoolExecutor() as threads:
        short = threads.submit(client.post, PATH, files=files, headers=brief)
        wait_until(lambda: waiting_replies(running) == 1)
        long = threads.submit(client.post, PATH, files=files, headers={"Prefer": "respond-async"})
        assert short.result().json()["code"] == "storage_unavailable"
        proxy.become("good")
        job = long.result().headers["location"]
        wait_until(lambda: client.get(job).json()["status"] not in ("queued", "running"))
        assert client.get(job).json()["status"] == "succeeded"


@pytest.mark.parametrize("cache_entries", [0, 10])
def test_a_client_with_a_key_that_leaves_while_its_reply_waits_for_the_storage_is_answered_at_its_repeat(
    serve: Serve, proxy: Any, bucket: Any, keys: None, files: Files, cache_entries: int
) -> None:
    running = serve(**promising(proxy.port), cache_entries=cache_entries)
    key = {"Idempotency-Key": "key"}
    proxy.become("gone")

    async def ask_and_leave() -> None:
        async with running.async_client() as leaving:
            asked = asyncio.create_task(leaving.post(PATH, files=files, headers=key))
            await until(lambda: waiting_replies(running) == 1)
            asked.cancel()
            await asyncio.wait({asked})
        assert asked.cancelled()

    asyncio.run(ask_and_leave())
    with running.client() as client:
        with ThreadPoolExecutor() as threads:
            repeating = threads.submit(client.post, PATH, files=files, headers=key)
            time.sleep(0.5)
            proxy.become("good")
            repeat = repeating.result()
        assert (repeat.status_code, repeat.headers.get("idempotency-replayed")) == (200, "true")
        assert client.get(repeat.headers["location"]).content == repeat.content
    running.stop()
    assert len([name for name in bucket.names if name.endswith(".png")]) == 1


def test_a_request_that_was_refused_after_it_was_computed_is_answered_with_that_result_at_its_repeat(
    served: Running, http: httpx.Client, proxy: Any, bucket: Bucket, files: Files, margin_s: float
) -> None:
    key = {"Idempotency-Key": "key"}
    brief = {"X-Request-Timeout-Ms": f"{(1.5 + margin_s) * 1e3:.0f}"}
    proxy.become("gone")
    refused = http.post(PATH, files=files, headers={**key, **brief})
    assert (refused.status_code, refused.json()["code"]) == (503, "storage_unavailable")
    assert "a repeat with the same Idempotency-Key gets it" in refused.text
    early = http.post(PATH, files=files, headers=key)
    assert (early.status_code, early.json()["code"]) == (503, "storage_unavailable"), "nothing is promised yet"
    proxy.become("good")
    wait_until(lambda: len([name for name in bucket.names if name.endswith(".json")]) == 1)
    repeat = http.post(PATH, files=files, headers=key)
    assert (repeat.status_code, repeat.headers.get("idempotency-replayed")) == (200, "true")
    assert [f"/v1/results/{one['id']}" for one in http.get("/v1/results").json()["results"]] == [
        repeat.headers["location"]
    ]


def test_a_reply_waits_for_a_slow_storage(http: httpx.Client, proxy: Any, bucket: Any, files: Files) -> None:
    proxy.become("slow")
    sent = time.monotonic()
    reply = http.post(PATH, files=files)
    assert time.monotonic() - sent >= 0.3
    name = reply.headers["location"].rpartition("/")[2]
    assert f"promised/{name[:2]}/{name}.json" in bucket.names


def test_a_promise_without_a_bucket_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="promise=store needs results_url"):
        open_storage(Settings(results_dir=tmp_path, promise="store"))
