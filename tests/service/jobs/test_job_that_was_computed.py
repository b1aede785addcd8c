"""A job whose server is killed after its result is stored and before its end is: the result is not orphaned."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.serving.held_ledger import ledger_held
from tests.serving.served_process import ServedProcess
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow
DATA = Path(__file__).parents[2] / "data"


def stored_results(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("??/*.png"))


@pytest.mark.parametrize("cache_entries", [0, 10])
def test_the_result_of_a_job_whose_end_is_not_recorded_is_that_of_the_job_after_a_restart(
    tmp_path: Path, cache_entries: int
) -> None:
    folder = tmp_path / "results"
    files = {"image": (DATA / "dress.jpg").read_bytes(), "mask": (DATA / "dress_mask.png").read_bytes()}
    with ServedProcess(tmp_path, fake_batch_ms=1000, cache_entries=cache_entries) as server:
        accepted = httpx.post(f"{server.url}/v1/inpaint", files=files, headers={"Prefer": "respond-async"}, timeout=60)
        with ledger_held(folder):
            wait_until(lambda: stored_results(folder))
            server.kill()
        stored = stored_results(folder)
        server.start()

        def job() -> dict[str, object]:
            found: dict[str, object] = httpx.get(f"{server.url}{accepted.headers['Location']}").json()
            return found

        wait_until(lambda: job()["status"] == "succeeded")
        assert job()["result_url"] == f"/v1/results/{stored[0]}"
        assert httpx.get(f"{server.url}{job()['result_url']}").status_code == 200
        server.terminate()
    assert stored_results(folder) == stored
