"""IOPaint's API over a real socket, with the requests of its page and of krita-iopaint."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.service.compat.open_inference.infer_requests import failures

Native = Callable[..., bytes]
InBase64 = Callable[[bytes], str]
OF_ITS_PAGE = {"ldm_steps": 30, "hd_strategy": "Crop", "prompt": "", "sd_seed": 42, "use_croper": False, "clip": None}


def inpaint(client: httpx.Client, **fields: Any) -> httpx.Response:
    return client.post("/api/v1/inpaint", json=fields)


def saved(pixels: np.ndarray, kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize(
    "head",
    [
        *("", "data:image/png;base64,", "data:application/octet-stream;base64,", "DATA:image/png;charset=x;BASE64,"),
        *("\n  data:image/png;base64,", "data:image/png; base64,", f"data:image/png;name={'a' * 250}.png;base64,"),
    ],
)
def test_a_fill_is_that_of_v1_inpaint_bit_by_bit(
    client: httpx.Client, native: Native, photo: bytes, mask: bytes, in_base64: InBase64, head: str
) -> None:
    filled = inpaint(client, image=head + in_base64(photo), mask=head + in_base64(mask), **OF_ITS_PAGE)
    assert (filled.status_code, filled.headers["Content-Type"]) == (200, "image/png")
    assert filled.content == native()
    assert filled.headers["X-Seed"] == "42"
    assert filled.headers["X-Ignored-Fields"] == "hd_strategy, ldm_steps, prompt, use_croper"


@pytest.mark.parametrize("kind", ["jpeg", "webp"])
def test_the_format_is_that_of_the_upload(
    client: httpx.Client, native: Native, photo: bytes, mask: bytes, in_base64: InBase64, kind: str
) -> None:
    image = saved(np.asarray(Image.open(io.BytesIO(photo))), kind)
    filled = inpaint(client, image=in_base64(image), mask=in_base64(mask))
    assert filled.headers["Content-Type"] == f"image/{kind}"
    assert filled.content == native(image=image, format=kind, quality="100")


@pytest.mark.parametrize("file", [b"no picture", b"GIF89a"])
def test_an_upload_that_cannot_be_read_is_named_and_counted_for_the_model(
    client: httpx.Client, mask: bytes, in_base64: InBase64, file: bytes
) -> None:
    before = failures(client)
    refused = inpaint(client, image=in_base64(file), mask=in_base64(mask))
    assert refused.json()["detail"].startswith("`image`: ")
    assert failures(client) == before + 1


def test_an_empty_mask_returns_the_upload_unchanged(client: httpx.Client, photo: bytes, in_base64: InBase64) -> None:
    empty = saved(np.zeros((64, 64), np.uint8), "PNG")
    filled = inpaint(client, image=in_base64(photo), mask=in_base64(empty))
    assert (filled.status_code, filled.content) == (200, photo)


@pytest.mark.parametrize(
    ("kind", "value", "most"), [(np.uint8, 1, "255"), (np.uint8, 100, "255"), (np.uint16, 1, "65,535")]
)
def test_a_mask_that_selects_nothing_but_is_not_black_is_refused_with_its_brightest_value(
    client: httpx.Client, photo: bytes, in_base64: InBase64, kind: type[np.generic], value: int, most: str
) -> None:
    dark = np.zeros((64, 64), kind)
    dark[20:40, 20:40] = value
    refused = inpaint(client, image=in_base64(photo), mask=in_base64(saved(dark, "PNG")))
    assert refused.status_code == 422
    assert refused.json()["code"] == "mask_empty"
    assert f"its brightest value is {value} of {most}, and holes must be at least" in refused.json()["detail"]


def test_slashes_may_be_escaped(
    client: httpx.Client, native: Native, photo: bytes, mask: bytes, in_base64: InBase64
) -> None:
    image, hole = (in_base64(data).replace("/", r"\/") for data in (photo, mask))
    body = f'{{"image": "{image}", "mask": "{hole}"}}'
    assert r"\/" in body
    filled = client.post("/api/v1/inpaint", content=body, headers={"Content-Type": "application/json"})
    assert filled.content == native()


@pytest.mark.parametrize(
    ("changed", "status", "code"),
    [
        ({"image": None}, 400, "missing_part"),
        ({"image": ""}, 400, "empty_part"),
        ({"image": 7}, 400, "invalid_request"),
        ({"image": "http://127.0.0.1/a.png"}, 400, "invalid_request"),
        ({"image": "data:image/png,abc"}, 400, "invalid_request"),
        ({"image": "\n data:image/png,abc"}, 400, "invalid_request"),
        ({"image": "data:base64,AAAA"}, 400, "invalid_request"),
        ({"image": "AAA"}, 400, "invalid_request"),
        ({"image": "AAAA"}, 415, "unsupported_type"),
        ({"sd_seed": -2}, 422, "invalid_option"),
        ({"sd_seed": "x"}, 422, "invalid_option"),
        ({"sd_seed": 2**63}, 422, "invalid_option"),
    ],
)
def test_what_cannot_be_read_is_refused_in_iopaints_form(
    client: httpx.Client, pair: dict[str, str], changed: dict[str, Any], status: int, code: str
) -> None:
    refused = inpaint(client, **{**pair, **changed})
    assert (refused.status_code, refused.json()["code"]) == (status, code), refused.text
    assert refused.json()["errors"] == refused.json()["detail"] != ""


def test_a_full_mask_and_one_of_another_size_are_refused(
    client: httpx.Client, photo: bytes, in_base64: InBase64
) -> None:
    for shape, code in (((64, 64), "mask_full"), ((64, 65), "sizes_differ")):
        mask = saved(np.full(shape, 255, np.uint8), "PNG")
        assert inpaint(client, image=in_base64(photo), mask=in_base64(mask)).json()["code"] == code


def test_the_page_finds_what_it_asks_for_before_it_draws_itself(client: httpx.Client, photo: bytes) -> None:
    config = client.get("/api/v1/server-config").json()
    assert [model["name"] for model in config["modelInfos"]] == ["photos"]
    assert config["modelInfos"][0] == client.get("/api/v1/model").json()
    assert (config["plugins"], config["disableModelSwitch"]) == ([], True)
    assert client.get("/api/v1/samplers").json() == []
    info = client.post("/api/v1/gen-info", files={"file": photo})
    assert info.json() == {"prompt": "", "negative_prompt": ""}
    assert client.get("/api/v1/inputimage").json()["error"] == "Not found"


def test_the_model_cannot_be_switched_for_all_clients(client: httpx.Client) -> None:
    assert client.post("/api/v1/model", json={"name": "photos"}).json()["name"] == "photos"
    refused = client.post("/api/v1/model", json={"name": "lama"})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_option")
