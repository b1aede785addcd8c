"""The list of models, the choice of a model, probes and metrics, over a real socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from engines.fake import FakeEngine
from engines.manifest import Manifest
from tests.service.web.replies import Files, Serve, check_problem
from tests.serving.local_server import Running
from tests.serving.waiting import wait_until


def test_models_are_listed_with_their_manifests(server: Running) -> None:
    with server.client() as client:
        models = {model["name"]: model for model in client.get("/v1/models").json()["models"]}
    assert models["photos"]["state"] == "ready"
    assert models["photos"]["engine"] == "fake/fp32"
    assert models["facades"]["manifest"]["task"] == "translate"
    assert models["photos"]["default"] is models["facades"]["default"] is True


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"model": "nope"}, 404, "model_not_found"),
        ({"model": "photos/9"}, 404, "model_not_found"),
        ({"model": "facades"}, 422, "wrong_task"),
        ({"model": "../etc/passwd"}, 422, "invalid_option"),
        ({"model": "photos/1"}, 200, None),
        ({"model": "photos"}, 200, None),
    ],
)
def test_the_model_is_chosen_by_name_and_version(
    server: Running, files: Files, fields: dict[str, str], status: int, code: str | None
) -> None:
    with server.client() as client:
        response = client.post("/v1/inpaint", files=files, data=fields)
    if code is None:
        assert response.status_code == status
    else:
        check_problem(response, status, code)


def test_a_new_version_is_served_without_a_restart_and_a_broken_one_is_not(
    serve: Serve, files: Files, models_dir: Path, add_model: Callable[..., Path]
) -> None:
    with serve().client() as client:
        assert client.post("/v1/inpaint", files=files).headers["x-model"] == "photos/1"
        add_model(models_dir, "photos", "inpaint", version=2)

        def served() -> str:
            used = client.post("/v1/inpaint", files=files).headers["x-model"]
            assert used in ("photos/1", "photos/2")
            return used

        wait_until(lambda: served() == "photos/2")
        (models_dir / "photos" / "3").mkdir()
        (models_dir / "photos" / "3" / "manifest.json").write_text("{}")
        time.sleep(0.2)
        assert client.post("/v1/inpaint", files=files).headers["x-model"] == "photos/2"
        assert client.post("/v1/inpaint", files=files, data={"model": "photos/1"}).headers["x-model"] == "photos/1"


def test_probes_answer(server: Running) -> None:
    with server.client() as client:
        assert client.get("/livez").json()["status"] == "ok"
        assert client.get("/readyz").status_code == 200
        assert "/v1/inpaint" in client.get("/openapi.json").json()["paths"]
        assert client.get("/docs").status_code == 200


def test_an_empty_repository_is_alive_but_not_ready(serve: Serve, files: Files, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    running = serve(models_dir=tmp_path / "none", wait=False)
    with running.client() as client:
        assert client.get("/livez").status_code == 200
        wait_until(lambda: "loading" not in client.get("/readyz").text)
        response = client.get("/readyz")
        assert response.status_code == 503
        assert "empty" in response.json()["reasons"][0]
        refused = client.post("/v1/inpaint", files=files)
        check_problem(refused, 503, "not_ready")
        assert int(refused.headers["retry-after"]) >= 1


def test_a_loaded_model_serves_while_others_still_load(serve: Serve, files: Files, photo: bytes) -> None:
    may_load = threading.Event()

    def load(manifest: Manifest) -> FakeEngine:
        assert manifest.name == "photos" or may_load.wait(60)
        return FakeEngine(manifest)

    with serve(load, wait=False).client() as client:
        wait_until(lambda: "ready" in [model["state"] for model in client.get("/v1/models").json()["models"]])
        assert client.post("/v1/inpaint", files=files).headers["x-model"] == "photos/1"
        assert client.get("/readyz").status_code == 503
        early = check_problem(client.post("/v1/translate", files={"image": photo}), 503, "not_ready")
        assert early["detail"] == "models are loading"
        job = client.post("/v1/translate", files={"image": photo}, headers={"Prefer": "respond-async"})
        check_problem(job, 503, "not_ready")
        may_load.set()
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert client.post("/v1/translate", files={"image": photo}).headers["x-model"] == "facades/1"
        check_problem(client.post("/v1/inpaint", files=files, data={"model": "nope"}), 404, "model_not_found")


def test_metrics_count_requests_stages_batches_and_saves(serve: Serve, files: Files) -> None:
    running = serve()
    with running.client() as client:
        client.post("/v1/inpaint", files=files)
        client.post("/v1/inpaint", files={"image": b"x"})
        wait_until(lambda: "retouch_save_lag_seconds_count 1.0" in client.get("/metrics").text)
        wait_until(lambda: "retouch_requests_in_flight 0.0" in client.get("/metrics").text)
        text = client.get("/metrics").text
    for line in (
        'retouch_request_duration_seconds_count{code="200",endpoint="/v1/inpaint",model="photos/1"} 1.0',
        'retouch_request_duration_seconds_count{code="400",endpoint="/v1/inpaint",model=""} 1.0',
        'retouch_stage_duration_seconds_count{stage="infer"} 1.0',
        'retouch_batch_size_count{device="cpu",model="photos/1"} 1.0',
        "retouch_save_lag_seconds_count 1.0",
        "retouch_queue_depth 0.0",
        "retouch_requests_in_flight 0.0",
        "retouch_spool_items 0.0",
        "retouch_ready 1.0",
    ):
        assert line in text, line


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        ("application/openmetrics-text;version=x", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.5", "text/plain; version=0.0.4; charset=utf-8"),
    ],
)
def test_metrics_come_in_the_format_that_the_scraper_prefers(server: Running, accept: str, kind: str) -> None:
    with server.client() as client:
        reply = client.get("/metrics", headers={"Accept": accept})
    assert (reply.status_code, reply.headers["content-type"]) == (200, kind)
    parse = parse_openmetrics if kind.startswith("application") else parse_text
    samples = {(sample.name, sample.value) for family in parse(reply.text) for sample in family.samples}
    assert ("retouch_ready", 1.0) in samples


def test_an_invalid_model_name_is_explained_without_a_pattern(server: Running, files: Files) -> None:
    with server.client() as client:
        refused = client.post("/v1/inpaint", files=files, data={"model": "My Model"})
    problem = check_problem(refused, 422, "invalid_option")
    assert problem["detail"] == "model: it is not a model name; send NAME or NAME/VERSION, such as photos/5"


def test_metrics_can_have_a_port_of_their_own(serve: Serve, free_port: int) -> None:
    running = serve(metrics_port=free_port)
    assert "retouch_ready 1.0" in httpx.get(f"http://127.0.0.1:{free_port}/metrics").text
    with running.client() as client:
        check_problem(client.get("/metrics"), 404, "not_found")


@pytest.mark.parametrize("path", ["/", "/readyz", "/metrics/x"])
def test_the_port_of_metrics_has_no_other_path_that_a_probe_could_take_for_ready(
    serve: Serve, free_port: int, path: str
) -> None:
    serve(metrics_port=free_port)
    assert httpx.get(f"http://127.0.0.1:{free_port}{path}").status_code == 404


@pytest.mark.parametrize("name", ["application/openmetrics-text", "text/plain"])
def test_the_port_of_metrics_takes_every_version_that_a_scraper_asks_for(
    serve: Serve, free_port: int, name: str
) -> None:
    serve(metrics_port=free_port)
    kinds = {"text/plain": "text/plain; version=0.0.4; charset=utf-8"}
    for version in ("x", "1.x", "0.0.1", "1.0.0", "2.0.0"):
        accept = f"{name};version={version};q=0.5,*/*;q=0.1"
        reply = httpx.get(f"http://127.0.0.1:{free_port}/metrics", headers={"Accept": accept})
        kind = kinds.get(name, f"{name}; version=1.0.0; charset=utf-8")
        assert (reply.status_code, reply.headers["content-type"]) == (200, kind), version
        assert "retouch_ready 1.0" in reply.text


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_probes_answer_head_requests(server: Running, path: str) -> None:
    with server.client() as client:
        response = client.head(path)
    assert (response.status_code, response.content) == (200, b"")
