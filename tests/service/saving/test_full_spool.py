"""A full spool while the bucket is unreachable: new requests are refused, and accepted jobs wait."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.serving.local_server import Serve
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow
PATH = "/v1/inpaint"
ASYNC = {"Prefer": "respond-async"}
Files = dict[str, tuple[str, bytes, str]]


@pytest.fixture
def settings(proxy: Any, keys: None) -> dict[str, Any]:
    """Settings of a server whose spool has room for one result, and whose bucket is unreachable."""
    proxy.become("gone")
    endpoint = f"http://127.0.0.1:{proxy.port}"
    return {"results_url": "s3://results/full", "s3_endpoint": endpoint, "spool_max_items": 1, "drain_timeout_s": 1}


def statuses(http: httpx.Client, jobs: list[str]) -> set[str]:
    return {http.get(job).json()["status"] for job in jobs}


@pytest.mark.parametrize("cache_entries", [0, 10])
def test_jobs_that_were_accepted_wait_for_space_and_other_requests_are_refused(
    serve: Serve, settings: dict[str, Any], proxy: Any, files: Files, cache_entries: int
) -> None:
    with serve(**settings, cache_entries=cache_entries).client() as http:
        assert http.post(PATH, files=files).status_code == 200
        data = {"quality": "7"}
        jobs = [http.post(PATH, files=files, data=data, headers=ASYNC).headers["location"] for _ in range(3)]
        time.sleep(1.5)
        assert statuses(http, jobs) <= {"queued", "running"}
        refused = http.post(PATH, files=files, data={"quality": "8"})
        assert (refused.status_code, refused.json()["code"]) == (503, "spool_full")
        proxy.become("good")
        wait_until(lambda: statuses(http, jobs) == {"succeeded"})


def test_a_job_that_waits_for_space_until_its_deadline_fails(
    serve: Serve, settings: dict[str, Any], proxy: Any, files: Files
) -> None:
    with serve(**settings).client() as http:
        assert http.post(PATH, files=files).status_code == 200
        job = http.post(PATH, files=files, headers={**ASYNC, "X-Request-Timeout-Ms": "1500"}).headers["location"]
        wait_until(lambda: http.get(job).json()["status"] == "failed")
        assert http.get(job).json()["problem"]["code"] == "deadline_exceeded"
    proxy.become("good")


def test_a_drain_gives_jobs_that_wait_for_space_back_at_once(
    serve: Serve, settings: dict[str, Any], proxy: Any, files: Files
) -> None:
    running = serve(**settings)
    with running.client() as http:
        assert http.post(PATH, files=files).status_code == 200
        job = http.post(PATH, files=files, headers=ASYNC).headers["location"]
        wait_until(lambda: running.service.admission.in_flight == 1)
        running.service.begin_draining()
        wait_until(lambda: not running.service.jobs.running, 10.0)
        assert http.get(job).json()["status"] == "queued"
    proxy.become("good")
    running.stop()
    with serve(**settings).client() as http:
        wait_until(lambda: http.get(job).json()["status"] == "succeeded")
