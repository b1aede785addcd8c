"""A job whose server restarts before its models are present, as when they are fetched from a bucket."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.served_process import ServedProcess
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow
Files = dict[str, tuple[str, bytes, str]]


def accept_and_die(server: ServedProcess, files: Files, **headers: str) -> str:
    """Let a server accept a job and kill it while its engine computes, however late; returns the job's path."""
    fault = server.hang_next_batch()
    headers = {"Prefer": "respond-async", **headers}
    accepted = httpx.post(f"{server.url}/v1/inpaint", files=files, headers=headers, timeout=60)
    wait_until(lambda: not fault.exists())
    server.kill()
    return str(accepted.headers["location"])


@pytest.mark.parametrize(("missing", "ready"), [(".", False), ("photos", True)], ids=["all models", "its own model"])
def test_a_job_waits_until_its_new_process_has_loaded_its_models(
    tmp_path: Path, models_dir: Path, files: Files, missing: str, ready: bool
) -> None:
    gone, aside = models_dir / missing, tmp_path / "aside"
    with ServedProcess(tmp_path, models_dir=models_dir) as server:
        location = accept_and_die(server, files)
        gone.rename(aside)
        server.start(ready=ready)

        def job() -> dict[str, Any]:
            found: dict[str, Any] = httpx.get(f"{server.url}{location}").json()
            return found

        time.sleep(3.0)
        assert job()["status"] in ("queued", "running"), job()  # its state from before the restart
        aside.rename(gone)
        wait_until(lambda: job()["status"] == "succeeded")


def test_a_job_whose_models_stay_missing_ends_at_its_deadline(tmp_path: Path, models_dir: Path, files: Files) -> None:
    with ServedProcess(tmp_path, models_dir=models_dir) as server:
        location = accept_and_die(server, files, **{"X-Request-Timeout-Ms": "8000"})
        models_dir.rename(tmp_path / "aside")
        server.start(ready=False)
        wait_until(lambda: httpx.get(f"{server.url}{location}").json()["status"] == "failed")
        problem = httpx.get(f"{server.url}{location}").json()["problem"]
        assert problem["code"] == "deadline_exceeded"
        assert "no server with the model photos" in problem["detail"]
