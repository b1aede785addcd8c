"""Generation: pictures made from random numbers alone."""

from __future__ import annotations

import base64
import io
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from tests.serving.tensor_specs import latent, output
from tests.serving.waiting import wait_until

Serve = Callable[..., Any]
SQUARE = {"kind": "fixed", "height": 32, "width": 48}


@pytest.fixture(autouse=True)
def faces(models_dir: Path, add_model: Callable[..., Path]) -> None:
    add_model(models_dir, "faces", "generate", inputs=[latent(100)], size=SQUARE)
    add_model(models_dir, "digits", "generate", inputs=[latent(100)], output=output(1), size=SQUARE)


def opened(body: bytes) -> Image.Image:
    return Image.open(io.BytesIO(body))


def test_an_empty_body_gives_a_picture_of_the_models_size(serve: Serve) -> None:
    with serve(generate_model="faces").client() as client:
        reply = client.post("/v1/generate")
        assert reply.status_code == 200, reply.text
        assert reply.headers["content-type"] == "image/png"
        assert (opened(reply.content).size, opened(reply.content).mode) == ((48, 32), "RGB")
        assert reply.headers["x-model"] == "faces/1"
        assert "x-mask-coverage" not in reply.headers
        assert client.get(reply.headers["location"]).content == reply.content
        again = client.post("/v1/generate", files={"seed": (None, reply.headers["x-seed"])})
        assert again.content == reply.content
        assert client.post("/v1/generate").content != reply.content


def test_a_url_encoded_form_gives_what_the_multipart_one_does(serve: Serve) -> None:
    fields = {"model": "faces", "seed": "5", "quality": ""}
    with serve().client() as client:
        reply = client.post("/v1/generate", data=fields)
        assert reply.request.headers["content-type"] == "application/x-www-form-urlencoded"
        multipart = client.post("/v1/generate", files={name: (None, text) for name, text in fields.items()})
    assert (reply.status_code, reply.content) == (200, multipart.content)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        pytest.param(b"seed=1&seed=2", 400, "repeated_part", id="a field twice"),
        pytest.param(b'{"seed": 1}', 422, "invalid_option", id="no form at all"),
        pytest.param(b"seed=%ff", 400, "invalid_request", id="no UTF-8 behind the escapes"),
        pytest.param(b"seed=\xff", 400, "invalid_request", id="no UTF-8"),
        pytest.param(b"&".join(b"f%d=x" % i for i in range(40)), 400, "invalid_request", id="40 fields"),
        pytest.param(b"seed=" + b"9" * 5000, 400, "invalid_request", id="an endless field"),
        pytest.param(b"seed=" + b"9" * 300_000, 413, "too_many_bytes", id="an endless form"),
        pytest.param(b"nope=1", 422, "invalid_option", id="an unknown field"),
        pytest.param(b"count=17", 422, "invalid_option", id="out of range"),
    ],
)
def test_a_url_encoded_form_that_is_not_what_the_call_takes_is_refused(
    serve: Serve, body: bytes, status: int, code: str
) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    with serve(generate_model="faces").client() as client:
        refused = client.post("/v1/generate", content=body, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (status, code), refused.text
        for fine in (b"", b"seed=1&", b"seed&count=1"):
            assert client.post("/v1/generate", content=fine, headers=headers).status_code == 200


def test_a_wrong_number_is_told_with_its_range_and_a_model_of_another_task_with_its_own(serve: Serve) -> None:
    with serve().client() as client:
        refused = client.post("/v1/generate", data={"count": "17"}).json()
        of_another_task = client.post("/v1/generate", data={"model": "photos"}).json()
    assert refused["detail"] == "count: it must be 1 to 16, not 17"
    assert of_another_task["detail"] == ("model photos is for inpaint, not generate; name another, or inpaint with it")


def test_a_call_with_files_takes_no_url_encoded_form(serve: Serve) -> None:
    with serve().client() as client:
        refused, empty = client.post("/v1/translate", data={"quality": "9"}), client.post("/v1/translate")
    assert (refused.status_code, refused.json()["code"]) == (415, "unsupported_type")
    assert empty.json()["detail"] == "send multipart/form-data, not a body without a Content-Type"


def test_a_one_channel_model_gives_grey_pictures(serve: Serve) -> None:
    with serve().client() as client:
        reply = client.post("/v1/generate", files={"model": (None, "digits"), "seed": (None, "1")})
    assert opened(reply.content).mode == "L"


@pytest.mark.parametrize("count", [1, 3, 16])
def test_count_pictures_all_differ_and_are_stored(serve: Serve, count: int) -> None:
    fields = {"model": (None, "faces"), "count": (None, str(count)), "seed": (None, "9")}
    with serve(max_batch_size=8).client() as client:
        reply = client.post("/v1/generate", files=fields, headers={"Accept": "application/json"})
        body = reply.json()
        images = body["images"] if count > 1 else [body]
        pictures = [base64.b64decode(one["image_base64"]) for one in images]
        assert len({np.asarray(opened(picture)).tobytes() for picture in pictures}) == count
        assert [client.get(one["result_url"]).content for one in images] == pictures
        first = client.post("/v1/generate", files={**fields, "count": (None, "1")})
    assert first.content == pictures[0]
    assert (body["seed"], body["mask_coverage"], body["width"], body["height"]) == (9, None, 48, 32)


def test_format_and_quality_are_those_of_the_other_calls(serve: Serve) -> None:
    fields = {"model": (None, "faces"), "format": (None, "jpeg"), "quality": (None, "10"), "save": (None, "false")}
    with serve().client() as client:
        reply = client.post("/v1/generate", files=fields)
        assert opened(reply.content).format == "JPEG"
        assert "location" not in reply.headers
        assert client.post("/v1/generate", files=fields | {"format": (None, "webp")}).headers["content-type"] == (
            "image/webp"
        )


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({}, 422, "model_required"),
        ({"model": "photos"}, 422, "wrong_task"),
        ({"model": "nobody"}, 404, "model_not_found"),
        ({"model": "faces", "count": "17"}, 422, "invalid_option"),
        ({"model": "faces", "samples": "2"}, 422, "invalid_option"),
    ],
)
def test_what_cannot_be_made_is_said(serve: Serve, fields: dict[str, str], status: int, code: str) -> None:
    with serve(generate_model="").client() as client:
        sent = {name: (None, value) for name, value in fields.items()}
        reply = client.post("/v1/generate", files=sent) if sent else client.post("/v1/generate")
    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text


def test_only_an_empty_body_may_be_no_form(serve: Serve) -> None:
    with serve(generate_model="faces").client() as client:
        assert client.post("/v1/generate", headers={"Content-Type": "application/json"}).status_code == 200
        json_body = client.post("/v1/generate", json={"seed": 1})
        assert (json_body.status_code, json_body.json()["code"]) == (415, "unsupported_type")
        file = client.post("/v1/generate", files={"image": b"x"})
        assert (file.status_code, file.json()["code"]) == (400, "invalid_request")
        assert "takes no files" in file.json()["detail"]
        assert client.post("/v1/inpaint").status_code == 415


def test_a_client_that_announces_a_body_and_leaves_is_counted_as_gone(serve: Serve) -> None:
    running = serve(generate_model="faces")
    address = urlsplit(running.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(b"POST /v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
    with running.client() as client:
        wait_until(lambda: "retouch_cancelled_total 1.0" in client.get("/metrics").text)
    assert running.service.admission.in_flight == 0


def test_a_job_makes_pictures_too(serve: Serve) -> None:
    with serve(generate_model="faces").client() as client:
        reply = client.post("/v1/generate", headers={"Prefer": "respond-async"})
    assert reply.status_code == 202
