"""Edits whose body is JSON with pictures as data URLs, which OpenAI's API accepts beside forms."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.serving import image_files

InBase64 = Callable[[bytes], str]
Native = Callable[..., bytes]


@pytest.fixture
def body(photo: bytes, alpha_mask: bytes, in_base64: InBase64) -> dict[str, Any]:
    """The JSON of an edit, in the form of OpenAI's documentation."""
    image, mask = (f"data:image/png;base64,{in_base64(file)}" for file in (photo, alpha_mask))
    return {"model": "photos", "prompt": "", "images": [{"image_url": image}], "mask": {"image_url": mask}}


def edit(client: httpx.Client, body: Any) -> httpx.Response:
    return client.post("/v1/images/edits", json=body)


def pictures(reply: httpx.Response) -> list[str]:
    assert reply.status_code == 200, reply.text
    return [one["b64_json"] for one in reply.json()["data"]]


def test_it_is_the_fill_of_a_form(
    client: httpx.Client, body: dict[str, Any], native: Native, in_base64: InBase64
) -> None:
    reply = edit(client, {**body, "size": "auto", "stream": False, "quality": None})
    assert pictures(reply) == [in_base64(native())]
    assert reply.headers["X-Ignored-Fields"] == "prompt, size"


def test_its_fields_are_those_of_a_form(
    client: httpx.Client, body: dict[str, Any], photo: bytes, alpha_mask: bytes, mask: bytes, in_base64: InBase64
) -> None:
    fields = {"n": 2, "seed": 7, "output_format": "jpeg", "output_compression": 50}
    form = {name: str(value) for name, value in fields.items()}
    expected = client.post("/v1/images/edits", files={"image": photo, "mask": alpha_mask}, data=form)
    assert pictures(edit(client, {**body, **fields})) == pictures(expected)
    white = {**body, "mask": {"image_url": in_base64(mask)}}
    assert edit(client, white).json()["error"]["code"] == "no_alpha"
    assert pictures(edit(client, {**white, "mask_mode": "white"})) == pictures(edit(client, body))
    assert edit(client, {**body, "stream": True}).headers["Content-Type"].startswith("text/event-stream")


def test_without_a_mask_the_transparent_part_is_filled(
    client: httpx.Client, body: dict[str, Any], photo: bytes, mask: bytes, native: Native, in_base64: InBase64
) -> None:
    colours, hole = (np.asarray(Image.open(io.BytesIO(file))) for file in (photo, mask))
    cut = np.dstack((colours, 255 - hole))
    asked = {**body, "images": [{"image_url": in_base64(image_files.png(cut))}], "mask": None}
    assert pictures(edit(client, asked)) == [in_base64(native())]


@pytest.mark.parametrize(
    ("changed", "code", "param", "advice"),
    [
        ({"images": []}, "missing_part", "images", "data URL"),
        ({"images": None}, "missing_part", "images", "data URL"),
        ({"images": [{"image_url": "AAAA"}, {"image_url": "AAAA"}]}, "repeated_part", "images", "one at a time"),
        ({"images": [{"file_id": "file-1"}]}, "missing_part", "images[0].image_url", "base64"),
        ({"images": [{"image_url": "https://a.example/b.png"}]}, "invalid_request", "images[0].image_url", "base64"),
        ({"images": "AAAA"}, "invalid_option", "images", "array"),
        ({"mask": {"file_id": "file-1"}}, "missing_part", "mask.image_url", "base64"),
        ({"mask": {"image_url": "AAA%"}}, "invalid_request", "mask.image_url", "base64"),
        ({"n": 9}, "invalid_option", "n", "n: it must be 1 to 8, not 9"),
        ({"stream": "maybe"}, "invalid_option", "stream", "true"),
    ],
)
def test_what_cannot_be_done_is_refused_and_named(
    client: httpx.Client, body: dict[str, Any], changed: dict[str, Any], code: str, param: str, advice: str
) -> None:
    refused = edit(client, {**body, **changed})
    error = refused.json()["error"]
    assert refused.status_code in (400, 422), refused.text
    assert (error["code"], error["param"]) == (code, param), error
    assert advice in error["message"]
