"""AUTOMATIC1111's API over a real socket, with the requests of webuiapi."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.serving.image_files import saved

Native = Callable[..., bytes]
OF_WEBUIAPI = {
    "denoising_strength": 0.75,
    "mask_blur": 4,
    "inpaint_full_res": True,
    "override_settings": {},
    "seed": -1,
}


def img2img(client: httpx.Client, pair: dict[str, str], **fields: Any) -> httpx.Response:
    asked = {"init_images": [pair["image"]], "mask": pair["mask"], **OF_WEBUIAPI, **fields}
    return client.post("/sdapi/v1/img2img", json=asked)


def test_a_fill_is_that_of_v1_inpaint_bit_by_bit(client: httpx.Client, native: Native, pair: dict[str, str]) -> None:
    found = img2img(client, pair, width=64, height=64).json()
    assert [base64.b64decode(image) for image in found["images"]] == [native()]
    info = json.loads(found["info"])
    assert (info["width"], info["index_of_first_image"], found["parameters"]) == (64, 0, {})
    lists = ("all_prompts", "all_negative_prompts", "all_seeds", "all_subseeds", "infotexts")
    assert all(len(info[name]) == 1 for name in lists)


@pytest.mark.parametrize("invert", [1, True, "1"])
def test_an_inverted_mask_fills_what_is_black(
    client: httpx.Client, native: Native, pair: dict[str, str], mask: bytes, invert: object
) -> None:
    file = io.BytesIO()
    ImageOps.invert(Image.open(io.BytesIO(mask))).save(file, "PNG")
    inverted = {**pair, "mask": base64.b64encode(file.getvalue()).decode()}
    assert base64.b64decode(img2img(client, inverted, inpainting_mask_invert=invert).json()["images"][0]) == native()


@pytest.mark.parametrize("ink", [0, 255])
@pytest.mark.parametrize("invert", [False, True])
def test_a_mask_drawn_on_a_transparent_ground_is_its_strokes_whatever_their_colour(
    client: httpx.Client, native: Native, pair: dict[str, str], mask: bytes, ink: int, invert: bool
) -> None:
    strokes = Image.open(io.BytesIO(mask)).convert("L")
    alpha = np.asarray(ImageOps.invert(strokes) if invert else strokes) // 255 * 200
    drawn = saved(np.dstack([*[np.full(alpha.shape, ink)] * 3, alpha]).astype(np.uint8), "PNG")
    reply = img2img(client, {**pair, "mask": base64.b64encode(drawn).decode()}, inpainting_mask_invert=invert)
    assert reply.status_code == 200, reply.text
    assert base64.b64decode(reply.json()["images"][0]) == native()


def test_a_mask_with_opaque_alpha_everywhere_is_its_colours(
    client: httpx.Client, native: Native, pair: dict[str, str], mask: bytes
) -> None:
    opaque = saved(np.asarray(Image.open(io.BytesIO(mask)).convert("RGBA")), "PNG")
    reply = img2img(client, {**pair, "mask": base64.b64encode(opaque).decode()})
    assert base64.b64decode(reply.json()["images"][0]) == native()


def test_a_drawn_mask_that_is_cut_off_is_refused_by_its_name(client: httpx.Client, pair: dict[str, str]) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (64, 64, 4), dtype=np.uint8)
    refused = img2img(client, {**pair, "mask": base64.b64encode(saved(noise, "PNG")[:-2000]).decode()})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_image")
    assert refused.json()["detail"].startswith("`mask`: ")


@pytest.mark.parametrize("damage", [lambda _: b"no picture", lambda drawn: drawn[: len(drawn) // 2]])
def test_a_mask_that_cannot_be_read_is_counted_for_the_model(
    client: httpx.Client, pair: dict[str, str], damage: Callable[[bytes], bytes]
) -> None:
    def failures() -> float:
        lines = client.get("/metrics").text.splitlines()
        start = "retouch_request_duration_seconds_count"
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith(start) and 'img2img"' in line and 'model="photos/1"' in line and 'code="4' in line
        )

    before = failures()
    drawn = saved(np.random.default_rng(0).integers(0, 256, (64, 64, 4), np.uint8), "PNG")
    refused = img2img(client, {**pair, "mask": base64.b64encode(damage(drawn)).decode()})
    assert refused.json()["detail"].startswith("`mask`: "), refused.text
    assert failures() == before + 1


def test_batches_and_repeats_are_as_many_pictures(client: httpx.Client, native: Native, pair: dict[str, str]) -> None:
    images = img2img(client, pair, batch_size=2, n_iter=2).json()["images"]
    assert len(images) == 4
    assert base64.b64decode(images[0]) == native()


@pytest.mark.parametrize("size", [(32, 48), (100, 80)])
def test_the_results_have_the_size_that_is_asked_for(
    client: httpx.Client, native: Native, pair: dict[str, str], size: tuple[int, int]
) -> None:
    found = img2img(client, pair, width=size[0], height=size[1]).json()
    picture = Image.open(io.BytesIO(base64.b64decode(found["images"][0])))
    assert picture.size == size
    whole = np.asarray(Image.open(io.BytesIO(native())).resize(size)).astype(float)
    assert abs(np.asarray(picture).astype(float) - whole).mean() < 20


@pytest.mark.parametrize("off", [False, 0])
def test_a_mask_of_another_size_is_stretched_over_the_picture_unless_only_its_area_is_computed(
    client: httpx.Client, native: Native, pair: dict[str, str], mask: bytes, off: object
) -> None:
    file = io.BytesIO()
    Image.open(io.BytesIO(mask)).resize((96, 48), Image.Resampling.NEAREST).save(file, "PNG")
    other = {**pair, "mask": base64.b64encode(file.getvalue()).decode()}
    filled = img2img(client, other, inpaint_full_res=off)
    assert filled.status_code == 200, filled.text
    assert base64.b64decode(filled.json()["images"][0]) == native(mask=file.getvalue(), mask_resize="nearest")
    assert "inpaint_full_res" not in filled.headers["X-Ignored-Fields"]
    for fields in ({"inpaint_full_res": True}, {"inpaint_full_res": off, "resize_mode": 1}):
        refused = img2img(client, other, **fields)
        assert (refused.status_code, refused.json()["code"]) == (400, "sizes_differ")
        assert "send inpaint_full_res=false and resize_mode=0" in refused.json()["detail"]


def test_what_is_ignored_is_named(client: httpx.Client, pair: dict[str, str]) -> None:
    ignored = img2img(client, pair, prompt="a dog").headers["X-Ignored-Fields"]
    assert ignored == "denoising_strength, inpaint_full_res, mask_blur, prompt"


def test_unused_settings_of_a_request_are_named_too(client: httpx.Client, pair: dict[str, str]) -> None:
    asked = {"sd_model_checkpoint": "photos", "CLIP_stop_at_last_layers": 2, "sd_vae": None, "samples_format": "jpg"}
    ignored = img2img(client, pair, override_settings=asked).headers["X-Ignored-Fields"].split(", ")
    ours = [name for name in ignored if name.startswith("override_settings")]
    assert ours == ["override_settings.CLIP_stop_at_last_layers", "override_settings.samples_format"]


def test_a_width_without_a_height_is_ignored_and_named(client: httpx.Client, pair: dict[str, str]) -> None:
    reply = img2img(client, pair, width=100)
    assert json.loads(reply.json()["info"])["width"] == 64
    assert "width" in reply.headers["X-Ignored-Fields"].split(", ")


@pytest.mark.parametrize(("part", "field"), [("image", "init_images"), ("mask", "mask")])
def test_an_error_names_the_field_in_which_the_file_came(
    client: httpx.Client, pair: dict[str, str], part: str, field: str
) -> None:
    refused = img2img(client, {**pair, part: base64.b64encode(b"no picture").decode()})
    assert refused.status_code == 415
    assert refused.json()["detail"] == refused.json()["errors"]
    assert refused.json()["detail"].startswith(f"`{field}`: ")


def test_an_error_that_only_quotes_a_name_like_a_fields_quotes_it_unchanged(
    client: httpx.Client, pair: dict[str, str]
) -> None:
    refused = img2img(client, pair, override_settings={"sd_model_checkpoint": "`image`"})
    assert (refused.status_code, refused.json()["code"]) == (404, "model_not_found")
    assert refused.json()["detail"].startswith("no model '`image`'")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"init_images": []}, 400, "missing_part"),
        ({"init_images": ["AAAA", "AAAA"]}, 400, "repeated_part"),
        ({"init_images": "AAAA"}, 422, "invalid_option"),
        ({"mask": None}, 400, "missing_part"),
        ({"batch_size": 2**62, "n_iter": 2**62}, 422, "invalid_option"),
        ({"batch_size": -1, "n_iter": -1}, 422, "invalid_option"),
        ({"width": 0, "height": 64}, 422, "invalid_option"),
        ({"width": 2**31, "height": 2**31}, 413, "too_many_pixels"),
        ({"width": 65_536, "height": 1}, 413, "too_many_pixels"),
        ({"seed": -2}, 422, "invalid_option"),
        ({"override_settings": {"sd_model_checkpoint": "sd15"}}, 404, "model_not_found"),
        ({"override_settings": {"sd_model_checkpoint": "v1-5.safetensors [abc]"}}, 404, "model_not_found"),
    ],
)
def test_what_cannot_be_done_is_refused_in_its_form(
    client: httpx.Client, pair: dict[str, str], fields: dict[str, Any], status: int, code: str
) -> None:
    refused = img2img(client, pair, **fields)
    assert (refused.status_code, refused.json()["code"]) == (status, code), refused.text
    assert refused.json()["detail"]


def test_what_clients_ask_before_they_fill(client: httpx.Client) -> None:
    assert client.get("/sdapi/v1/options").json()["sd_model_checkpoint"] == "photos"
    assert [one["title"] for one in client.get("/sdapi/v1/sd-models").json()] == ["photos"]
    assert client.get("/sdapi/v1/samplers").json() == []
    progress = client.get("/sdapi/v1/progress").json()
    assert (progress["progress"], progress["state"]["job_count"], progress["state"]["sampling_steps"]) == (0, 0, 0)
    for same in ("photos", "", None):
        assert client.post("/sdapi/v1/options", json={"sd_model_checkpoint": same}).status_code == 200
    refused = client.post("/sdapi/v1/options", json={"sd_model_checkpoint": "sd15"})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_option")
