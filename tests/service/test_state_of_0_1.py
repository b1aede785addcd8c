"""A server of today serves the state that 0.1 left; `benchmarks.versions.write_state` wrote it at commit 23a5997."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.serving.served_process import ServedProcess
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow
STATE = Path(__file__).parents[1] / "data/state-0.1.tar.xz"


@dataclass(frozen=True)
class Left:
    """The old state, and the server that serves it."""

    folder: Path
    promises: dict[str, Any]
    http: httpx.Client
    spooled: list[str]
    """Ids of the results that were only in the spool."""

    def ask(self, promise: dict[str, Any], **headers: str) -> httpx.Response:
        """Repeat the request of a promise with its Idempotency-Key."""
        fields, asked = promise["fields"], {"Idempotency-Key": promise["key"], **headers}
        if promise["task"] == "inpaint":
            encoded = self.promises["files"]
            types = {"image": ("image.jpg", "image/jpeg"), "mask": ("mask.png", "image/png")}
            parts = {name: (file, base64.b64decode(encoded[name]), kind) for name, (file, kind) in types.items()}
            return self.http.post("/v1/inpaint", files=parts, data=fields, headers=asked)
        return self.http.post(f"/v1/{promise['task']}", files={k: (None, v) for k, v in fields.items()}, headers=asked)

    def job(self, key: str) -> dict[str, Any]:
        """Return the promise of the job with that Idempotency-Key."""
        return next(job for job in self.promises["jobs"] if job["key"] == key)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    folder = tmp_path_factory.mktemp("state")
    with tarfile.open(STATE) as archive:
        archive.extractall(folder / "written", filter="data")
    with closing(written_just_now(folder / "written/results/.ledger.sqlite3")):
        shutil.copytree(folder / "written", folder, dirs_exist_ok=True)  # closing it merges its log
    assert (folder / "results/.ledger.sqlite3-wal").stat().st_size > 0
    promises = json.loads((folder / "promises.json").read_text())
    promised = [promise["location"].rpartition("/")[2] for promise in promises["results"]]
    spooled = [name for name in promised if not list((folder / "results").glob(f"??/{name}.*"))]
    assert len(promised) - len(spooled) >= 3
    names = {"inpaint_model": "holes", "generate_model": "faces"}
    with ServedProcess(folder, engine="onnxrt", models_dir=folder / "models", **names) as served:
        with httpx.Client(base_url=served.url, timeout=60) as http:
            yield Left(folder, promises, http, spooled)
        assert served.terminate() == 0, served.log


def written_just_now(ledger: Path) -> sqlite3.Connection:
    """Shift all times in a ledger, so that jobs and answers are as old as when 0.1 ended."""
    connection = sqlite3.connect(ledger)
    connection.create_function("later", 1, lambda t: None if t is None else t + time.time() - newest)
    (newest,) = connection.execute("SELECT max(created_at) FROM jobs").fetchone()
    connection.execute(
        "UPDATE jobs SET created_at = later(created_at), finished_at = later(finished_at), "
        "facts = json_set(facts, '$.deadline_at', later(json_extract(facts, '$.deadline_at')))"
    )
    connection.execute("UPDATE idempotency SET expires_at = later(expires_at)")
    connection.commit()
    return connection


def sha256(reply: httpx.Response) -> str:
    return hashlib.sha256(reply.content).hexdigest()


def test_every_result_is_served_as_it_was_promised_with_its_sidecar(left: Left) -> None:
    for promise in left.promises["results"]:
        found = left.http.get(promise["location"])
        assert (found.status_code, sha256(found)) == (200, promise["sha256"])
        sidecar = left.http.get(promise["location"], headers={"Accept": "application/json"})
        assert sidecar.json() == promise["sidecar"]


def test_spooled_results_reach_their_final_place(left: Left) -> None:
    results = left.folder / "results"
    assert len(left.spooled) == 2
    for name in left.spooled:
        wait_until(lambda: list(results.glob(f"{name[:2]}/{name}.json")))  # noqa: B023 -- called in this round
        image = next(path for path in results.glob(f"{name[:2]}/{name}.*") if path.suffix != ".json")
        promise = next(one for one in left.promises["results"] if one["location"].endswith(name))
        assert hashlib.sha256(image.read_bytes()).hexdigest() == promise["sha256"]
    written = [folder.name for folder in (left.folder / "written/results/.spool").iterdir()]
    wait_until(lambda: not any((results / ".spool" / name).exists() for name in written))


def test_a_repeated_request_gets_the_kept_answer_byte_for_byte(left: Left) -> None:
    for promise in left.promises["answers"]:
        again = left.ask(promise)
        assert (again.status_code, sha256(again)) == (200, promise["sha256"])
        assert again.headers["idempotency-replayed"] == "true"


def test_a_key_that_comes_with_another_request_is_refused(left: Left) -> None:
    promise = left.promises["answers"][0]
    reply = left.ask({**promise, "fields": {**promise["fields"], "quality": "17"}})
    assert (reply.status_code, reply.json()["code"]) == (422, "idempotency_mismatch")


def test_a_finished_job_can_be_polled_with_its_results(left: Left) -> None:
    job = left.job("finished")
    state = left.http.get(job["location"]).json()
    moved = {"created": state["created"]}  # shifted like the ledger's other times
    assert {name: state[name] for name in job["state"]} == {**job["state"], **moved}
    assert [sha256(left.http.get(url)) for url in state["result_urls"]] == job["sha256"]


@pytest.mark.parametrize(("key", "size", "results"), [("pending", (32, 32), 1), ("waiting", (64, 64), 2)])
def test_an_unfinished_job_is_done(left: Left, key: str, size: tuple[int, int], results: int) -> None:
    location = left.job(key)["location"]
    wait_until(lambda: left.http.get(location).json()["status"] not in ("queued", "running"))
    state = left.http.get(location).json()
    assert (state["status"], len(state["result_urls"])) == ("succeeded", results), state
    for url in state["result_urls"]:
        found = left.http.get(url)
        assert (found.status_code, Image.open(BytesIO(found.content)).size) == (200, size)


def test_a_repeated_job_is_the_same_job(left: Left) -> None:
    for promise in left.promises["jobs"]:
        again = left.ask(promise, Prefer="respond-async")
        assert (again.status_code, again.headers["location"]) == (202, promise["location"])


def test_its_models_are_served(left: Left) -> None:
    models = left.http.get("/v1/models").json()
    assert {(model["name"], model["version"], model["state"]) for model in models["models"]} == {
        ("faces", 1, "ready"),
        ("holes", 1, "ready"),
    }
