"""The HTTP contract, over a real socket."""

from __future__ import annotations

import base64
import io
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

Files = dict[str, tuple[str, bytes, str]]
Serve = Callable[..., Any]


def pixels(body: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(body)))


def check_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert (response.status_code, body["code"]) == (status, code), body
    assert response.headers["content-type"] == "application/problem+json"
    assert body["status"] == status
    assert body["request_id"] == response.headers["x-request-id"]
    assert body["type"] == f"urn:retouch:problem:{code}"
    assert body["title"]
    assert body["detail"]
    assert body["instance"].startswith("/")
    return body


def test_an_image_and_a_mask_give_a_filled_image_that_is_bit_identical_outside_the_mask(
    serve: Serve, files: Files, photo: bytes, mask: bytes
) -> None:
    with serve().client() as client:
        response = client.post("/v1/inpaint", files=files)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "image/png"
    before, after, hole = pixels(photo), pixels(response.content), pixels(mask) >= 128
    np.testing.assert_array_equal(before[~hole], after[~hole])
    assert (before[hole] != after[hole]).mean() > 0.5


def test_a_reply_says_what_made_it_and_where_the_time_went(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        headers = client.post("/v1/inpaint", files=files, headers={"X-Request-ID": "my-request"}).headers
    assert headers["x-request-id"] == "my-request"
    assert headers["x-model"] == "photos/1"
    assert headers["x-engine"] == "fake/fp32"
    assert headers["x-batch-size"] == "1"
    assert float(headers["x-mask-coverage"]) == pytest.approx(16 * 16 / 64**2)
    stages = dict(part.split(";dur=") for part in headers["server-timing"].split(", "))
    assert list(stages) == ["memory", "decode", "preprocess", "queue", "infer", "postprocess", "encode"]
    assert all(float(milliseconds) >= 0 for milliseconds in stages.values())


def test_an_unsafe_request_id_is_replaced(serve: Serve) -> None:
    with serve().client() as client:
        given = client.get("/livez", headers={"X-Request-ID": "a b;c"}).headers["x-request-id"]
    assert len(given) == 32


def test_translate_gives_an_image_of_the_same_size(serve: Serve, photo: bytes) -> None:
    with serve().client() as client:
        response = client.post("/v1/translate", files={"image": photo})
    assert response.status_code == 200
    assert response.headers["x-model"] == "facades/1"
    assert "x-mask-coverage" not in response.headers
    np.testing.assert_allclose(pixels(response.content), 255 - pixels(photo), atol=1)


@pytest.mark.parametrize(
    ("data", "headers", "media_type"),
    [
        ({"format": "jpeg"}, {}, "image/jpeg"),
        ({"format": "webp", "quality": "50"}, {"Accept": "image/png"}, "image/webp"),
        ({}, {"Accept": "image/jpeg"}, "image/jpeg"),
        ({}, {"Accept": "*/*"}, "image/png"),
    ],
)
def test_the_format_is_that_of_the_field_or_else_of_the_accept_header(
    serve: Serve, files: Files, data: dict[str, str], headers: dict[str, str], media_type: str
) -> None:
    with serve().client() as client:
        response = client.post("/v1/inpaint", files=files, data=data, headers=headers)
    assert response.headers["content-type"] == media_type
    assert Image.open(io.BytesIO(response.content)).get_format_mimetype() == media_type


def test_json_gives_the_same_as_the_image_and_its_headers(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        image = client.post("/v1/inpaint", files=files)
        reply = client.post("/v1/inpaint", files=files, headers={"Accept": "application/json"})
    body = reply.json()
    assert base64.b64decode(body["image_base64"]) == image.content
    assert (body["media_type"], body["width"], body["height"]) == ("image/png", 64, 64)
    assert body["model"] == reply.headers["x-model"] == "photos/1"
    assert body["result_url"] == reply.headers["location"]
    assert body["mask_coverage"] == pytest.approx(0.0625)


def test_mask_modes_select_what_they_say(serve: Serve, photo: bytes, mask: bytes) -> None:
    inverted = Image.fromarray(255 - pixels(mask))
    alpha = Image.new("LA", (64, 64))
    alpha.putalpha(inverted)
    results = []
    with serve().client() as client:
        for mode, picture in (("white", Image.open(io.BytesIO(mask))), ("black", inverted), ("alpha", alpha)):
            file = io.BytesIO()
            picture.save(file, "PNG")
            response = client.post(
                "/v1/inpaint", files={"image": photo, "mask": file.getvalue()}, data={"mask_mode": mode}
            )
            assert response.status_code == 200, response.text
            results.append(response.content)
    assert results[0] == results[1] == results[2]


def test_a_mask_of_another_size_is_refused_unless_resizing_is_asked_for(serve: Serve, photo: bytes) -> None:
    small = io.BytesIO()
    Image.fromarray(np.eye(32, dtype=np.uint8) * 255).save(small, "PNG")
    files = {"image": photo, "mask": small.getvalue()}
    with serve().client() as client:
        detail = check_problem(client.post("/v1/inpaint", files=files), 400, "sizes_differ")["detail"]
        assert "64×64" in detail
        assert "32×32" in detail
        assert client.post("/v1/inpaint", files=files, data={"mask_resize": "nearest"}).status_code == 200


@pytest.mark.parametrize("strategy", ["auto", "crop", "whole"])
def test_several_holes_in_a_large_image_are_all_filled(serve: Serve, strategy: str) -> None:
    before = np.full((300, 500, 3), 90, np.uint8)
    before[:, ::2] = 110
    hole = np.zeros((300, 500), np.uint8)
    for row, column in ((5, 5), (150, 250), (280, 480)):
        hole[row : row + 15, column : column + 15] = 255
    files = {}
    for name, picture in (("image", before), ("mask", hole)):
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "PNG")
        files[name] = file.getvalue()
    with serve().client() as client:
        response = client.post("/v1/inpaint", files=files, data={"strategy": strategy})
    assert response.status_code == 200, response.text
    after = pixels(response.content)
    np.testing.assert_array_equal(before[hole == 0], after[hole == 0])


def test_a_saved_result_can_be_fetched_with_its_sidecar(serve: Serve, files: Files, tmp_path: Path) -> None:
    running = serve()
    with running.client() as client:
        response = client.post("/v1/inpaint", files=files, data={"quality": "80"}, headers={"X-Request-ID": "r1"})
        location = response.headers["location"]
        stored = client.get(location)
        assert stored.content == response.content
        assert stored.headers["content-type"] == "image/png"
        sidecar = client.get(location, headers={"Accept": "application/json"}).json()
        assert sidecar["request_id"] == "r1"
        assert sidecar["model"] == "photos/1"
        assert sidecar["options"]["quality"] == 80
        running.service.store.flush(10)
        assert client.get(location).content == response.content
    assert len(list((tmp_path / "results").rglob("*.png"))) == 1


def test_an_unsaved_result_has_no_location(serve: Serve, files: Files, tmp_path: Path) -> None:
    running = serve()
    with running.client() as client:
        response = client.post("/v1/inpaint", files=files, data={"save": "false"})
        json = client.post(
            "/v1/inpaint", files=files, data={"save": "no"}, headers={"Accept": "application/json"}
        ).json()
    assert "location" not in response.headers
    assert json["result_url"] is None
    running.service.store.flush(10)
    assert list((tmp_path / "results").rglob("*.png")) == []


@pytest.mark.parametrize(
    "path", ["/v1/results/none", f"/v1/results/{'0' * 32}", "/v1/results/..%2F..%2Fetc", "/v1/jobs/x"]
)
@pytest.mark.parametrize("accept", ["*/*", "application/json"])
def test_what_was_never_stored_is_not_found(serve: Serve, path: str, accept: str) -> None:
    with serve().client() as client:
        check_problem(client.get(path, headers={"Accept": accept}), 404, "not_found")


def poll(client: httpx.Client, url: str) -> dict[str, Any]:
    end = time.monotonic() + 10
    while True:
        body: dict[str, Any] = client.get(url).json()
        if body["status"] not in ("queued", "running"):
            return body
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_asynchronous_request_is_a_job_that_can_be_polled_to_its_result(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        direct = client.post("/v1/inpaint", files=files).content
        accepted = client.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async"})
        assert accepted.status_code == 202
        assert accepted.headers["preference-applied"] == "respond-async"
        job = poll(client, accepted.headers["location"])
        assert job["status"] == "succeeded"
        assert client.get(job["result_url"]).content == direct


def test_a_job_that_fails_says_why(serve: Serve, mask: bytes) -> None:
    with serve().client() as client:
        accepted = client.post(
            "/v1/inpaint", files={"image": b"GIF89a nonsense", "mask": mask}, headers={"Prefer": "respond-async"}
        )
        job = poll(client, accepted.headers["location"])
    assert job["status"] == "failed"
    assert job["problem"]["status"] == 415


def test_a_job_can_be_cancelled_and_gives_its_place_back(serve: Serve, files: Files) -> None:
    running = serve(fake_batch_ms=0)
    with running.client() as client:
        accepted = client.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async"})
        assert client.delete(accepted.headers["location"]).status_code == 200
        assert poll(client, accepted.headers["location"])["status"] in ("cancelled", "succeeded")
    end = time.monotonic() + 5
    while running.service.admission.in_flight and time.monotonic() < end:
        time.sleep(0.01)
    assert running.service.admission.in_flight == 0


def test_a_job_without_saving_would_have_no_result(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        response = client.post("/v1/inpaint", files=files, data={"save": "false"}, headers={"Prefer": "respond-async"})
        check_problem(response, 422, "job_needs_save")


def test_models_are_listed_with_their_manifests(serve: Serve) -> None:
    with serve().client() as client:
        models = {model["name"]: model for model in client.get("/v1/models").json()["models"]}
    assert models["photos"]["state"] == "ready"
    assert models["photos"]["engine"] == "fake/fp32"
    assert models["facades"]["manifest"]["task"] == "translate"


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
    serve: Serve, files: Files, fields: dict[str, str], status: int, code: str | None
) -> None:
    with serve().client() as client:
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
        end = time.monotonic() + 10
        while (used := client.post("/v1/inpaint", files=files).headers["x-model"]) != "photos/2":
            assert used == "photos/1"
            assert time.monotonic() < end
        (models_dir / "photos" / "3").mkdir()
        (models_dir / "photos" / "3" / "manifest.json").write_text("{}")
        time.sleep(0.2)
        assert client.post("/v1/inpaint", files=files).headers["x-model"] == "photos/2"
        assert client.post("/v1/inpaint", files=files, data={"model": "photos/1"}).headers["x-model"] == "photos/1"


def test_probes_answer(serve: Serve) -> None:
    with serve().client() as client:
        assert client.get("/livez").json()["status"] == "ok"
        assert client.get("/readyz").status_code == 200
        assert "/v1/inpaint" in client.get("/openapi.json").json()["paths"]
        assert client.get("/docs").status_code == 200


def test_an_empty_repository_is_alive_but_not_ready(serve: Serve, files: Files, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    running = serve(models_dir=tmp_path / "none", wait=False)
    with running.client() as client:
        assert client.get("/livez").status_code == 200
        end = time.monotonic() + 5
        while "loading" in (response := client.get("/readyz")).text and time.monotonic() < end:
            time.sleep(0.01)
        assert response.status_code == 503
        assert "empty" in response.json()["reasons"][0]
        refused = client.post("/v1/inpaint", files=files)
        check_problem(refused, 503, "not_ready")
        assert int(refused.headers["retry-after"]) >= 1


def test_metrics_count_requests_stages_batches_and_saves(serve: Serve, files: Files) -> None:
    running = serve()
    with running.client() as client:
        client.post("/v1/inpaint", files=files)
        client.post("/v1/inpaint", files={"image": b"x"})
        running.service.store.flush(10)
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


def test_unknown_paths_and_methods_are_problems_too(serve: Serve) -> None:
    with serve().client() as client:
        check_problem(client.get("/v1/nothing"), 404, "not_found")
        response = client.get("/v1/inpaint")
        check_problem(response, 405, "method_not_allowed")
        assert response.headers["allow"] == "POST"


def test_a_deadline_that_has_no_chance_is_answered_504(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        response = client.post("/v1/inpaint", files=files, headers={"X-Request-Timeout-Ms": "0.001"})
        check_problem(response, 504, "deadline_exceeded")
        response = client.post("/v1/inpaint", files=files, headers={"X-Request-Timeout-Ms": "soon"})
        check_problem(response, 422, "invalid_option")


@pytest.mark.parametrize("name", ["Idempotency-Key", "X-Request-Timeout-Ms", "X-Priority"])
def test_a_header_that_has_one_value_is_refused_when_it_is_sent_twice(serve: Serve, files: Files, name: str) -> None:
    with serve().client() as client:
        once = client.post("/v1/inpaint", files=files, headers=[(name, "9")])
        assert once.status_code in (200, 504), once.text
        twice = client.post("/v1/inpaint", files=files, headers=[(name, "9"), (name.lower(), "8")])
        check_problem(twice, 422, "invalid_option")
        assert f"{name} is sent 2 times" in twice.json()["detail"]


def test_metrics_can_have_a_port_of_their_own(serve: Serve, free_port: int) -> None:
    running = serve(metrics_port=free_port)
    assert "retouch_ready 1.0" in httpx.get(f"http://127.0.0.1:{free_port}/metrics").text
    with running.client() as client:
        check_problem(client.get("/metrics"), 404, "not_found")


def test_a_body_that_does_not_come_in_time_is_given_up(serve: Serve) -> None:
    running = serve(body_timeout_s=0.2)
    head = b"POST /v1/inpaint HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    address = running.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=10) as connection:
        connection.sendall(head + b"Content-Length: 1000\r\nX-Request-Timeout-Ms: 86400000\r\n\r\n--b")
        answer = HTTPResponse(connection)
        answer.begin()
        body = answer.read()
    assert answer.status == 408
    assert b"upload_timeout" in body
    assert running.service.admission.uploading == 0


def test_repeated_headers_are_read_as_one_list(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        several = [("Prefer", "wait=5"), ("Prefer", "respond-async")]
        assert client.post("/v1/inpaint", files=files, headers=several).status_code == 202
        accepts = [("Accept", "image/gif"), ("Accept", "image/webp")]
        assert client.post("/v1/inpaint", files=files, headers=accepts).headers["content-type"] == "image/webp"


def test_caches_are_told_that_the_reply_depends_on_accept(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        reply = client.post("/v1/inpaint", files=files)
        assert reply.headers["vary"] == "Accept"
        stored = client.get(reply.headers["location"])
        assert stored.headers["vary"] == "Accept"
        assert "immutable" in stored.headers["cache-control"]


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_probes_answer_head_requests(serve: Serve, path: str) -> None:
    with serve().client() as client:
        response = client.head(path)
    assert (response.status_code, response.content) == (200, b"")


def test_a_trailing_slash_is_another_path_and_no_redirect(serve: Serve) -> None:
    with serve().client() as client:
        check_problem(client.get("/v1/models/", headers={"Host": "elsewhere.example"}), 404, "not_found")


def test_pictures_wait_for_memory_and_each_other(serve: Serve, files: Files) -> None:
    running = serve(max_decoded_mb=0.01)
    with running.client() as client, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: client.post("/v1/inpaint", files=files).status_code, range(16)))
    assert replies == [200] * 16
    assert running.service.pipeline.decoded.budget.taken == 0


def test_a_client_that_has_a_result_already_is_told_so(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        location = client.post("/v1/inpaint", files=files).headers["location"]
        image, sidecar = client.get(location), client.get(location, headers={"Accept": "application/json"})
        assert image.headers["etag"] != sidecar.headers["etag"]
        again = client.get(location, headers={"If-None-Match": f'"other", W/{image.headers["etag"]}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", image.headers["etag"])
        assert client.get(location, headers={"If-None-Match": sidecar.headers["etag"]}).status_code == 200
        gone = f"/v1/results/{'0' * 32}"
        assert client.get(gone, headers={"If-None-Match": f'"{"0" * 32}"'}).status_code == 404
