"""The advice in a foreign API's errors can be followed with that API."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from retouch.client.png import encode_png
from service.compat.assembly import foreign_apis
from service.core.errors import codes_by_status
from service.core.settings import FOREIGN_APIS
from service.saving.local_disk.disk_state import INCOMING
from tests.service.compat.foreign_requests import EDIT, IMG2IMG, IOPAINT, ForeignRequest
from tests.serving.bad_request import MASK, PHOTO

Serve = Callable[..., Any]
WHITE, BLACK = (encode_png(np.full((64, 64), value, np.uint8)) for value in (255, 0))
FULL = "the mask selects every pixel, which leaves nothing to fill from"
EMPTY = "the mask selects no pixel to fill"
ALL = ",".join(FOREIGN_APIS)


def sent(client: httpx.Client, good: ForeignRequest) -> httpx.Response:
    return client.post(good.path, content=good.body, headers=good.headers)


def test_a_full_mask_through_iopaint_is_refused_with_what_its_masks_mean(
    client: httpx.Client, in_base64: Callable[[bytes], str], photo: bytes
) -> None:
    refused = client.post(IOPAINT.path, json={"image": in_base64(photo), "mask": in_base64(WHITE)})
    assert (refused.status_code, refused.json()["code"]) == (422, "mask_full")
    assert refused.json()["errors"] == f"{FULL}; make black what is to be kept: white is filled"


@pytest.mark.parametrize(
    ("hole", "inverted", "code"),
    [(WHITE, 0, "mask_full"), (WHITE, 1, "mask_empty"), (BLACK, 0, "mask_empty"), (BLACK, 1, "mask_full")],
    ids=["white", "white inverted", "black", "black inverted"],
)
def test_a_mask_of_one_colour_through_img2img_is_refused_with_the_field_that_inverts_it(
    client: httpx.Client, pair: dict[str, str], in_base64: Callable[[bytes], str], hole: bytes, inverted: int, code: str
) -> None:
    body = {"init_images": [pair["image"]], "mask": in_base64(hole), "inpainting_mask_invert": inverted}
    refused = client.post(IMG2IMG.path, json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, code)
    what = {"mask_full": FULL, "mask_empty": EMPTY}[code]
    assert refused.json()["detail"] == f"{what}; check inpainting_mask_invert"


def test_a_mask_of_zeros_and_ones_is_explained_everywhere(
    client: httpx.Client, in_base64: Callable[[bytes], str], photo: bytes
) -> None:
    ones = np.zeros((64, 64), np.uint8)
    ones[20:40] = 1
    body = {"init_images": [in_base64(photo)], "mask": in_base64(encode_png(ones))}
    native = client.post("/v1/inpaint", files={"image": photo, "mask": encode_png(ones)}).json()["detail"]
    assert client.post(IMG2IMG.path, json=body).json()["detail"] == native
    assert native.endswith("holes must be at least 128; multiply it by 255")


def test_an_opaque_or_transparent_mask_of_openais_api_is_refused_with_what_its_masks_mean(
    client: httpx.Client, photo: bytes
) -> None:
    for alpha, what in ((0, FULL), (255, EMPTY)):
        hole = encode_png(np.full((64, 64, 4), alpha, np.uint8))
        masked = client.post(EDIT.path, files={"image": photo, "mask": hole}).json()["error"]
        assert masked["message"].startswith(f"{what}; what is transparent in it (alpha 0) is filled; send extra_body=")
        alone = client.post(EDIT.path, files={"image": hole}).json()["error"]
        assert alone["message"].startswith(f"{what}; the image is its own mask: make transparent (alpha 0)")
        assert masked["code"] == alone["code"]
    white = client.post(EDIT.path, files={"image": photo, "mask": WHITE}, data={"mask_mode": "white"}).json()["error"]
    assert white["message"] == f"{FULL}; mask_mode=white was applied; check the mask and mask_mode"


def test_a_picture_too_large_for_a_format_is_refused_with_the_field_of_openais_api(client: httpx.Client) -> None:
    wide = np.zeros((1, 16_384, 4), np.uint8)
    wide[:, 100:, 3] = 255
    refused = client.post(EDIT.path, files={"image": encode_png(wide)}, data={"output_format": "webp"})
    assert refused.json()["error"]["code"] == "format_too_small"
    assert refused.json()["error"]["message"].endswith("; ask for output_format=png")


@pytest.mark.parametrize(
    ("good", "advice"),
    [
        (EDIT, "name a `model`"),
        (IOPAINT, "this API has no field for a model, so the server's operator must set a default"),
        (IMG2IMG, "name one in override_settings.sd_model_checkpoint"),
    ],
    ids=lambda value: getattr(value, "api", ""),
)
def test_without_a_default_model_each_api_says_how_it_names_one(
    serve: Serve, good: ForeignRequest, advice: str
) -> None:
    with serve(apis=ALL, inpaint_model="").client() as client:
        said = good.message(sent(client, good).json())
    assert said == f"this server has no --inpaint-model; {advice}"


@pytest.mark.parametrize("good", [IOPAINT, IMG2IMG], ids=lambda good: good.api)
def test_while_nothing_can_be_saved_no_field_is_advised_that_the_api_does_not_have(
    serve: Serve, good: ForeignRequest
) -> None:
    running = serve(apis=ALL)
    incoming = running.service.settings.results_dir / INCOMING
    incoming.rename(incoming.with_name("aside"))
    incoming.write_bytes(b"")  # a file in place of the folder: the probe of the disk fails
    disk = running.service.store.disk
    disk.record_failure(OSError(errno.ENOSPC, "No space left on device"))
    disk.probe_if_suspected()  # its error is the reason in both messages, whenever the server probes
    with running.client() as client:
        refused = sent(client, good)
        native = client.post("/v1/inpaint", files={"image": PHOTO, "mask": MASK}).json()["detail"]
    assert (refused.status_code, refused.json()["code"]) == (503, "storage_unavailable")
    assert good.message(refused.json()) == f"{native.partition(';')[0]}; try again later"


def test_every_code_with_advice_of_an_api_is_one_of_the_error_tree() -> None:
    known = {code for codes in codes_by_status().values() for code in codes}
    assert {code for api in foreign_apis(FOREIGN_APIS) for code in api.advice} <= known
