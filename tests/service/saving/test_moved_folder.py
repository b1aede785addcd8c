"""A server whose results folder is moved while it runs."""

from __future__ import annotations

import signal
import threading
from functools import partial
from pathlib import Path

import httpx

from engines.fake import FakeEngine
from service.ledger.sqlite_file import LEDGER_FILE
from tests.serving.local_server import serving
from tests.serving.waiting import wait_until

Files = dict[str, tuple[str, bytes, str]]
AS_JOB = {"Prefer": "respond-async"}


def finished(client: httpx.Client, job: str) -> bool:
    return client.get(job).json()["status"] == "succeeded"


def test_keys_and_jobs_after_the_move_are_at_the_path_at_the_next_start(
    tmp_path: Path, models_dir: Path, files: Files
) -> None:
    key = {"Idempotency-Key": "after-the-move"}
    with serving(tmp_path, models_dir=models_dir) as running, running.client() as client:
        before = client.post("/v1/inpaint", files=files, headers=AS_JOB).headers["location"]
        wait_until(lambda: finished(client, before))
        (tmp_path / "results").rename(tmp_path / "archive")
        first = client.post("/v1/inpaint", files=files, headers=key)
        job = client.post("/v1/inpaint", files=files, headers=AS_JOB).headers["location"]
        wait_until(lambda: finished(client, job))
        assert client.get(before).status_code == 404, "it was moved away"
    with serving(tmp_path, models_dir=models_dir) as running, running.client() as client:
        again = client.post("/v1/inpaint", files=files, headers=key)
        assert (again.headers["idempotency-replayed"], again.content) == ("true", first.content)
        assert finished(client, job)


def test_a_job_that_was_moved_unfinished_stops_and_is_run_where_it_is_now(
    tmp_path: Path, models_dir: Path, files: Files
) -> None:
    results, moved = tmp_path / "results", tmp_path / "elsewhere/results"
    release = threading.Event()
    busy = partial(FakeEngine, batch_s=1, sleep=lambda _: release.wait(60))
    with serving(tmp_path, busy, models_dir=models_dir) as running, running.client() as client:
        job = client.post("/v1/inpaint", files=files, headers=AS_JOB).headers["location"]
        wait_until(lambda: client.get(job).json()["status"] == "running")
        moved.parent.mkdir()
        results.rename(moved)
        wait_until(lambda: client.get(job).status_code == 404)
        wait_until(lambda: "retouch_requests_in_flight 0.0" in client.get("/metrics").text)
        release.set()
    with serving(moved.parent, models_dir=models_dir) as running, running.client() as client:
        wait_until(lambda: finished(client, job))
        assert client.get(client.get(job).json()["result_url"]).status_code == 200


def test_a_server_is_not_ready_while_its_ledger_is_moved_without_its_log(
    tmp_path: Path, models_dir: Path, files: Files
) -> None:
    ledger, moved = tmp_path / "results" / LEDGER_FILE, tmp_path / "results" / "moved"
    with serving(tmp_path, models_dir=models_dir) as running, running.client() as client:
        wait_until(lambda: client.get("/readyz").status_code == 200)
        ledger.rename(moved)
        wait_until(lambda: client.get("/readyz").status_code == 503)
        (reason,) = client.get("/readyz").json()["reasons"]
        assert reason == (
            f"the ledger is not used: it was moved or replaced without {ledger.name}-wal and {ledger.name}-shm; "
            "move these files to it, or move it back"
        )
        assert client.get("/livez").status_code == 200
        assert client.post("/v1/inpaint", files=files, headers=AS_JOB).status_code == 503
        moved.rename(ledger)
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert client.post("/v1/inpaint", files=files, headers=AS_JOB).status_code == 202


def test_a_ledger_that_is_not_used_does_not_hold_up_the_end_of_a_server_that_can_lose_nothing(
    tmp_path: Path, models_dir: Path, files: Files
) -> None:
    ledger, moved = tmp_path / "results" / LEDGER_FILE, tmp_path / "results" / "moved"
    release = threading.Event()
    busy = partial(FakeEngine, batch_s=1, sleep=lambda _: release.wait(60))
    with serving(tmp_path, busy, models_dir=models_dir) as running, running.client() as client:
        job = client.post("/v1/inpaint", files=files, headers=AS_JOB).headers["location"]
        wait_until(lambda: client.get(job).json()["status"] == "running")
        ledger.rename(moved)
        release.set()
        promised = client.post("/v1/inpaint", files=files).headers["location"]
        running.server.handle_exit(signal.SIGTERM, None)
        running.thread.join(30)
        assert not running.thread.is_alive(), "the drain takes 60 s"
    moved.rename(ledger)
    with serving(tmp_path, models_dir=models_dir) as running, running.client() as client:
        assert client.get(promised).status_code == 200
        wait_until(lambda: finished(client, job))
