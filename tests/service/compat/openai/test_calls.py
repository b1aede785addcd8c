"""OpenAI's images API over a real socket."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.service.compat.open_inference.infer_requests import failures
from tests.serving import image_files
from tests.serving.local_server import Running

Native = Callable[..., bytes]


def edit(client: httpx.Client, files: Any, headers: dict[str, str] | None = None, **data: str) -> httpx.Response:
    return client.post("/v1/images/edits", files=files, data={"prompt": "", **data}, headers=headers)


def picture(reply: httpx.Response) -> bytes:
    assert reply.status_code == 200, reply.text
    return base64.b64decode(reply.json()["data"][0]["b64_json"])


@pytest.mark.parametrize("name", ["image", "image[]", "image[0]", "image[12]"])
def test_an_edit_is_the_fill_of_v1_inpaint_bit_by_bit(
    client: httpx.Client, native: Native, photo: bytes, alpha_mask: bytes, name: str
) -> None:
    files = {name: ("upload", photo, "application/octet-stream"), "mask": alpha_mask}
    assert picture(edit(client, files)) == native()


def test_a_mask_without_alpha_is_refused_with_a_remedy_that_works(
    client: httpx.Client, native: Native, photo: bytes, mask: bytes
) -> None:
    files = {"image": photo, "mask": mask}
    refused = edit(client, files)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "no_alpha")
    assert 'extra_body={"mask_mode": "white"}' in refused.json()["error"]["message"]
    assert picture(edit(client, files, mask_mode="white")) == native()


def test_without_a_mask_the_transparent_part_is_filled_and_the_result_is_opaque(
    client: httpx.Client, native: Native, photo: bytes, mask: bytes
) -> None:
    pixels = np.asarray(Image.open(io.BytesIO(photo)))
    alpha = 255 - np.asarray(Image.open(io.BytesIO(mask)))
    file = io.BytesIO()
    Image.fromarray(np.dstack((pixels, alpha))).save(file, "PNG")
    reply = edit(client, {"image": file.getvalue()}, mask_mode="white")
    assert picture(reply) == native()
    assert reply.headers["X-Ignored-Fields"] == "mask_mode, prompt"


def test_an_image_that_is_opaque_needs_a_mask(client: httpx.Client, photo: bytes) -> None:
    refused = edit(client, {"image": photo})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "no_alpha")


@pytest.mark.parametrize("damage", [lambda file: b"GIF89a", lambda file: file.replace(b"IEND", b"iEND")])
def test_an_image_that_cannot_be_used_is_named_also_where_it_is_its_own_mask(
    client: httpx.Client, damage: Callable[[bytes], bytes]
) -> None:
    file = image_files.png(np.zeros((64, 64, 4), np.uint8))
    refused = edit(client, {"image": damage(file)}).json()["error"]
    assert refused["message"].startswith("`image`: ")
    assert refused["param"] == "image"


@pytest.mark.parametrize("own_alpha", [True, False])
@pytest.mark.parametrize("file", [b"GIF89a", b"no picture"])
def test_an_image_that_cannot_be_used_is_counted_for_the_model(
    client: httpx.Client, alpha_mask: bytes, file: bytes, own_alpha: bool
) -> None:
    before = failures(client)
    edit(client, {"image": file} if own_alpha else {"image": file, "mask": alpha_mask})
    assert failures(client) == before + 1


@pytest.mark.parametrize(
    ("compression", "quality"), [("80", "80"), ("0", "1"), ("00", "1"), ("", "100"), (None, "100")]
)
def test_format_and_compression_are_those_of_the_request_or_openais_default(
    client: httpx.Client, native: Native, photo: bytes, alpha_mask: bytes, compression: str | None, quality: str
) -> None:
    asked = {} if compression is None else {"output_compression": compression}
    reply = edit(client, {"image": photo, "mask": alpha_mask}, output_format="jpeg", **asked)
    assert picture(reply) == native(format="jpeg", quality=quality)
    assert (reply.json()["output_format"], reply.json()["size"]) == ("jpeg", "64x64")


def test_several_edits_of_any_model_are_pictures_of_their_own(
    client: httpx.Client, native: Native, photo: bytes, alpha_mask: bytes
) -> None:
    images = edit(client, {"image": photo, "mask": alpha_mask}, n="3").json()["data"]
    assert len(images) == 3
    assert base64.b64decode(images[0]["b64_json"]) == native()


def test_what_is_ignored_is_named_in_a_header(client: httpx.Client, photo: bytes, alpha_mask: bytes) -> None:
    fields = {"size": "1024x1024", "quality": "high", "user": "me", "nobody_knows": "7", "prompt": "a" * 40_000}
    reply = edit(client, {"image": photo, "mask": alpha_mask}, **fields)
    assert picture(reply)
    assert reply.headers["X-Ignored-Fields"] == "nobody_knows, prompt, quality, size, user"
    assert reply.headers["X-Model"] == "photos/1"


def test_a_stream_is_one_complete_event_and_the_end(
    client: httpx.Client, native: Native, photo: bytes, alpha_mask: bytes
) -> None:
    reply = edit(client, {"image": photo, "mask": alpha_mask}, stream="true", partial_images="2")
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    first, last, _ = reply.text.split("\n\n")
    event = json.loads(first.partition("data: ")[2])
    assert (event["type"], last) == ("image_edit.completed", "data: [DONE]")
    assert base64.b64decode(event["b64_json"]) == native()


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"model": "gpt-image-1"}, 404, "model_not_found"),
        ({"model": "DALL·E"}, 404, "model_not_found"),
        ({"n": "0"}, 422, "invalid_option"),
        ({"n": str(2**63)}, 422, "invalid_option"),
        ({"output_format": "gif"}, 422, "invalid_option"),
        ({"output_compression": "101"}, 422, "invalid_option"),
        ({"seed": "-1"}, 422, "invalid_option"),
        ({"model": "facades"}, 422, "wrong_task"),
    ],
)
def test_what_cannot_be_done_is_refused_in_openais_form(
    client: httpx.Client, photo: bytes, alpha_mask: bytes, fields: dict[str, str], status: int, code: str
) -> None:
    refused = edit(client, {"image": photo, "mask": alpha_mask}, **fields)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    assert refused.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("compression", ["-1", "101", "1e9", "-0.5"])
def test_a_compression_outside_openais_range_is_answered_with_that_range(
    client: httpx.Client, photo: bytes, alpha_mask: bytes, compression: str
) -> None:
    refused = edit(client, {"image": photo, "mask": alpha_mask}, output_compression=compression)
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "output_compression")
    assert "0 to 100" in refused.json()["error"]["message"]


PICTURE = ("upload", b"GIF89a", "image/gif")


@pytest.mark.parametrize(
    ("fields", "files", "param"),
    [
        ({"model": "gpt-image-1"}, {}, "model"),
        ({"model": "DALL·E"}, {}, "model"),
        ({"model": "facades"}, {}, "model"),
        ({"n": "9"}, {}, "n"),
        ({"n": "0"}, {}, "n"),
        ({"output_format": "gif"}, {}, "output_format"),
        ({"output_compression": "101"}, {}, "output_compression"),
        ({"seed": "-1"}, {}, "seed"),
        ({"response_format": "file"}, {}, "response_format"),
        ({"response_format": "url"}, {}, "response_format"),
        ({"response_format": "url", "stream": "true"}, {}, "response_format"),
        ({"stream": "undefined"}, {}, "stream"),
        ({"mask_mode": "red"}, {}, "mask_mode"),
        ({"seed": "-1", "n": "0"}, {}, None),
        ({}, {"mask": PICTURE}, "mask"),
        ({}, {"mask": ("upload", b"", "image/png")}, "mask"),
        ({}, {"image[]": PICTURE}, "image"),
        ({}, {"reference": PICTURE}, "reference"),
        ({"user": "a" * 200_000}, {}, "user"),
    ],
)
def test_the_field_that_is_at_fault_is_the_errors_param(
    client: httpx.Client, photo: bytes, alpha_mask: bytes, fields: dict[str, str], files: Any, param: str | None
) -> None:
    refused = edit(client, {"image": photo, "mask": alpha_mask, **files}, **fields)
    assert refused.is_client_error
    assert refused.json()["error"]["param"] == param, refused.text


def test_a_mask_that_is_at_fault_is_the_errors_param_and_the_image_is_where_it_is_the_mask(
    client: httpx.Client, photo: bytes, mask: bytes
) -> None:
    opaque, small = (image_files.png(np.full((side, side, 4), 255, np.uint8)) for side in (64, 32))
    for files, code, param in (
        ({"image": photo, "mask": mask}, "no_alpha", "mask"),
        ({"image": photo}, "no_alpha", "mask"),
        ({"image": photo, "mask": opaque}, "mask_empty", "mask"),
        ({"image": opaque}, "mask_empty", "image"),
        ({"image": photo, "mask": small}, "sizes_differ", "mask"),
    ):
        error = edit(client, files).json()["error"]
        assert (error["code"], error["param"]) == (code, param)


@pytest.mark.parametrize(
    ("field", "value"), [("prompt", "\ud83d"), ("n", "x"), ("n", 17), ("model", 7.5), ("model", []), ("seed", {})]
)
def test_the_field_that_is_at_fault_is_the_errors_param_also_in_json(
    client: httpx.Client, field: str, value: Any
) -> None:
    body = json.dumps({"model": "faces", field: value})
    refused = client.post("/v1/images/generations", content=body, headers={"Content-Type": "application/json"})
    assert refused.json()["error"]["param"] == field, refused.text


def test_generations_are_those_of_v1_generate(client: httpx.Client) -> None:
    asked = {"model": "faces", "prompt": "a face", "n": 2, "seed": 7, "quality": "high", "user": None}
    reply = client.post("/v1/images/generations", json=asked)
    assert reply.status_code == 200, reply.text
    fields = {"model": (None, "faces"), "count": (None, "2"), "seed": (None, "7")}
    ours = client.post("/v1/generate", files=fields).json()
    assert [one["b64_json"] for one in reply.json()["data"]] == [one["image_base64"] for one in ours["images"]]
    assert reply.headers["X-Ignored-Fields"] == "prompt, quality"


def test_the_list_of_models_is_openais_beside_ours(client: httpx.Client) -> None:
    found = client.get("/v1/models").json()
    assert found["object"] == "list"
    assert found["data"][1] == {"id": "faces", "object": "model", "created": 0, "owned_by": "retouch"}
    assert [one["id"] for one in found["data"]] == ["facades", "faces", "photos"]
    assert {one["name"] for one in found["models"]} == {"facades", "faces", "photos"}


def test_a_model_is_openais_beside_our_versions_of_it(client: httpx.Client) -> None:
    found = client.get("/v1/models/faces").json()
    versions = found.pop("models")
    assert found == {"id": "faces", "object": "model", "created": 0, "owned_by": "retouch"}
    assert versions == [one for one in client.get("/v1/models").json()["models"] if one["name"] == "faces"]
    (version,) = client.get("/v1/models/faces%2F1").json()["models"]
    assert client.get("/v1/models/faces/1").json() == {**found, "id": "faces/1", "models": [version]}
    assert version in versions
    missing = client.get("/v1/models/gpt-image-1")
    assert (missing.status_code, missing.json()["code"]) == (404, "model_not_found")


def test_an_idempotency_key_gives_the_first_answer_again(
    server: Running, client: httpx.Client, photo: bytes, alpha_mask: bytes
) -> None:
    files, key = {"image": photo, "mask": alpha_mask}, {"Idempotency-Key": "an-edit"}
    first, again = edit(client, files, key), edit(client, files, key)
    assert again.content == first.content
    assert again.headers["Idempotency-Replayed"] == "true"
    assert edit(client, files, key, stream="true").json()["error"]["code"] == "idempotency_mismatch"


@pytest.mark.parametrize("path", ["/v1/models/nope", "/v1/chat/completions"])
def test_problems_of_shared_and_unknown_paths_have_openais_error_too(client: httpx.Client, path: str) -> None:
    found = client.get(path)
    problem = found.json()
    assert (found.status_code, found.headers["Content-Type"]) == (404, "application/problem+json")
    wanted = {"message": problem["detail"], "type": "invalid_request_error", "param": None, "code": problem["code"]}
    assert problem["error"] == wanted


def test_problems_of_other_paths_have_only_their_own_members(client: httpx.Client) -> None:
    assert "error" not in client.get("/v1/results/nope").json()
    assert "error" not in client.get("/v1/inpaint").json()
    assert "error" not in client.post("/v1/inpaint").json()


def test_without_openais_api_no_problem_has_its_error(serve: Callable[..., Running]) -> None:
    with serve(apis="iopaint").client() as client:
        assert "error" not in client.get("/v1/models/nope").json()
        assert "error" not in client.get("/v1/nope").json()
