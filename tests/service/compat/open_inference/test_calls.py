"""The Open Inference Protocol over a real socket."""

from __future__ import annotations

import base64
import gzip
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.service.compat.open_inference.infer_requests import (
    LENGTH,
    as_binary,
    as_json,
    element,
    failures,
    of_files,
    parts_of,
)
from tests.serving.waiting import wait_until

Native = Callable[..., bytes]
INFER = "/v2/models/photos/infer"


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize("path", [INFER, "/v2/models/photos/versions/1/infer"])
def test_files_in_binary_form_give_the_fill_of_v1_inpaint_bit_by_bit(
    client: httpx.Client, native: Native, photo: bytes, mask: bytes, path: str
) -> None:
    body, headers = as_binary(of_files(photo, mask), id="mine")
    found, data = parts_of(client.post(path, content=body, headers=headers))
    assert (found["model_name"], found["model_version"], found["id"]) == ("photos", "1", "mine")
    size = {"binary_data_size": len(data)}
    assert found["outputs"] == [{"name": "output", "datatype": "BYTES", "shape": [1], "parameters": size}]
    assert data == element(native())


def test_json_without_binary_data_is_answered_in_json(
    client: httpx.Client, native: Native, photo: bytes, mask: bytes
) -> None:
    found = client.post(INFER, json=as_json(photo, mask, parameters={"format": "webp", "quality": 70})).json()
    assert base64.b64decode(found["outputs"][0]["data"][0]) == native(format="webp", quality="70")


def test_pixels_are_answered_in_pixels(client: httpx.Client, native: Native, photo: bytes, mask: bytes) -> None:
    image, hole = pixels(photo), pixels(mask)
    inputs = {
        "image": ("UINT8", [1, *image.shape], image.tobytes()),
        "mask": ("UINT8", [1, *hole.shape, 1], hole.tobytes()),
    }
    body, headers = as_binary(inputs, outputs=[{"name": "output", "parameters": {"binary_data": True}}])
    found, data = parts_of(client.post(INFER, content=body, headers=headers))
    assert (found["outputs"][0]["datatype"], found["outputs"][0]["shape"]) == ("UINT8", [1, 64, 64, 3])
    np.testing.assert_array_equal(np.frombuffer(data, np.uint8).reshape(64, 64, 3), pixels(native()))


def test_pixels_may_have_alpha(client: httpx.Client, native: Native, photo: bytes, mask: bytes) -> None:
    image, hole = pixels(photo), pixels(mask)
    clear = np.dstack((image, np.full(hole.shape, 9, np.uint8)))
    inputs = {
        "image": ("UINT8", [1, *clear.shape], clear.tobytes()),
        "mask": ("BYTES", [1, 1], element(mask)),
    }
    body, headers = as_binary(inputs)
    found, data = parts_of(client.post(INFER, content=body, headers=headers))
    assert found["outputs"][0]["shape"] == [1, 64, 64, 4]
    filled = np.frombuffer(data, np.uint8).reshape(64, 64, 4)
    np.testing.assert_array_equal(filled[:, :, :3], pixels(native()))
    assert (filled[:, :, 3] == 9).all()


def states(client: httpx.Client, model: str) -> list[str]:
    return [one["state"] for one in client.post("/v2/repository/index").json() if one["name"] == model]


def test_a_model_that_is_refused_is_not_ready_and_says_why(serve: Callable[..., Any], models_dir: Path) -> None:
    (models_dir / "broken/1").mkdir(parents=True)
    (models_dir / "broken/1/manifest.json").write_text("{}")
    with serve(apis="open-inference").client() as client:
        wait_until(lambda: states(client, "broken") == ["UNAVAILABLE"])
        for reply in (
            client.get("/v2/models/broken/ready"),
            client.post("/v2/models/broken/infer", json={"inputs": []}),
        ):
            assert (reply.status_code, reply.json()["code"]) == (503, "model_refused")
            assert str(models_dir) not in reply.text
        assert client.get("/v2/models/broken").json()["inputs"] == []


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_body_may_be_packed(
    client: httpx.Client, native: Native, photo: bytes, mask: bytes, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body, headers = as_binary(of_files(photo, mask))
    reply = client.post(INFER, content=pack(body), headers={**headers, "Content-Encoding": encoding})
    assert parts_of(reply)[1] == element(native())


def test_a_model_that_draws_takes_its_seed_from_the_parameters(client: httpx.Client) -> None:
    asked = {"inputs": [], "parameters": {"seed": 7, "count": 2, "sequence_id": 0}}
    reply = client.post("/v2/models/faces/infer", json=asked)
    fields = {"model": (None, "faces"), "count": (None, "2"), "seed": (None, "7")}
    ours = client.post("/v1/generate", files=fields).json()
    assert reply.json()["outputs"][0]["data"] == [one["image_base64"] for one in ours["images"]]
    assert reply.json()["parameters"] == {"seed": 7}
    assert reply.headers["X-Ignored-Fields"] == "sequence_id"


def test_a_translation_is_that_of_v1_translate(client: httpx.Client, photo: bytes) -> None:
    body, headers = as_binary({"image": ("BYTES", [1], element(photo))})
    ours = client.post("/v1/translate", files={"image": photo}).content
    assert parts_of(client.post("/v2/models/facades/infer", content=body, headers=headers))[1] == element(ours)


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({"timeout": 0}, 200),
        ({"timeout": 60_000_000}, 200),
        ({"timeout": 1}, 504),
        ({"timeout": -1}, 422),
        ({"timeout": 2**63}, 422),
        ({"timeout": 2**70}, 422),
        ({"timeout": "soon"}, 422),
        ({"priority": 0}, 200),
        ({"priority": 2**63}, 200),
        ({"priority": -1}, 422),
        ({"seed": -1}, 422),
        ({"format": "bmp"}, 422),
        ({"webhook": "https://example.org"}, 200),  # not a parameter of the protocol, so ignored
    ],
)
def test_parameters_are_checked(
    client: httpx.Client, photo: bytes, mask: bytes, parameters: dict[str, Any], status: int
) -> None:
    reply = client.post(INFER, json=as_json(photo, mask, parameters=parameters))
    assert reply.status_code == status, reply.text
    assert status == 200 or isinstance(reply.json()["error"], str)


@pytest.mark.parametrize("model", ["nobodys", "photos/versions/9", "photos/versions/x"])
def test_a_model_that_is_not_there_is_404(client: httpx.Client, photo: bytes, mask: bytes, model: str) -> None:
    refused = client.post(f"/v2/models/{model}/infer", json=as_json(photo, mask))
    assert (refused.status_code, refused.json()["code"]) == (404, "model_not_found")
    assert client.get(f"/v2/models/{model}").status_code == 404


def test_server_and_models_describe_themselves(client: httpx.Client) -> None:
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data", "model_configuration", "statistics"]
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"live": True, "ready": True}
    described = client.get("/v2/models/photos").json()
    assert [one["name"] for one in described["inputs"]] == ["image", "mask"]
    assert described["versions"] == ["1"]
    assert client.get("/v2/models/photos/versions/1/ready").json() == {"name": "photos", "ready": True}
    assert client.get("/v2/models/faces/config").json()["input"] == []
    index = client.post("/v2/repository/index").json()
    assert [(one["name"], one["state"]) for one in index] == [
        (name, "READY") for name in ("facades", "faces", "photos")
    ]
    assert client.post("/v2/repository/index", json={"ready": True}).json() == index


def test_statistics_count_what_was_computed(client: httpx.Client, native: Native) -> None:
    def count() -> int:
        return client.get("/v2/models/photos/stats").json()["model_stats"][0]["inference_count"]

    before = count()
    native()
    assert count() >= before + 1
    everything = client.get("/v2/models/stats").json()["model_stats"]
    assert {one["name"] for one in everything} == {"facades", "faces", "photos"}


def test_binary_data_without_the_length_of_the_json_is_refused_with_the_name_of_the_header(
    client: httpx.Client, photo: bytes, mask: bytes
) -> None:
    body, headers = as_binary(of_files(photo, mask))
    del headers[LENGTH]
    missing = client.post(INFER, content=body, headers=headers)
    assert missing.status_code == 400
    assert f"the header {LENGTH} is missing; send the JSON's length in it" in missing.json()["error"]
    wrong = client.post(INFER, content=body, headers={**headers, LENGTH: "ten"})
    assert "send the length of the JSON in bytes" in wrong.json()["error"]


@pytest.mark.parametrize("fault", ["an input is missing", "no picture", "over /v1", "unknown model"])
def test_a_failure_is_counted_for_its_model_if_that_is_known(client: httpx.Client, mask: bytes, fault: str) -> None:
    before = failures(client)
    if fault == "over /v1":
        refused = client.post("/v1/inpaint", files={"image": b"no picture", "mask": mask})
    else:
        model = "nobodys" if fault == "unknown model" else "photos"
        inputs = as_json(b"no picture", mask)
        if fault == "an input is missing":
            del inputs["inputs"][1]
        refused = client.post(f"/v2/models/{model}/infer", json=inputs)
    assert refused.is_client_error, refused.text
    assert failures(client) == before + (fault != "unknown model")


def test_models_are_neither_loaded_nor_unloaded_from_outside(client: httpx.Client) -> None:
    assert client.post("/v2/models/photos/load").json() == {
        "error": "no such path; GET /docs lists them",
        "code": "not_found",
    }
