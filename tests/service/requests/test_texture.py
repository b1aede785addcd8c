"""`texture=copied`: applied off the event loop, stated in the reply, and refused where the kernel is missing."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from service.imaging.texture import patch_match
from service.imaging.texture.patch_match import installed_kernel
from tests.service.conftest import png
from tests.service.web.replies import poll
from tests.serving.tensor_specs import image, latent, output
from tests.serving.tensor_specs import mask as mask_spec

Serve = Callable[..., Any]
Files = dict[str, tuple[str, bytes, str]]
JSON = "application/json"
COPIED = {"texture": "copied"}
needs_extension = pytest.mark.skipif(installed_kernel() is None, reason="Retouch was installed without a C++ compiler")


@pytest.fixture
def without_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch_match, "_EXTENSION", "service.imaging.texture._not_compiled")


def pixels(body: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(body)))


def inpaint_fields(client: Any) -> set[str]:
    (photos,) = [one for one in client.get("/v1/models").json()["models"] if one["name"] == "photos"]
    return {field["name"] for field in photos["takes"]["fields"]}


@needs_extension
def test_the_fill_differs_inside_the_mask_only_and_the_reply_says_so(serve: Serve, files: Files, mask: bytes) -> None:
    with serve().client() as client:
        plain, textured, again = (client.post("/v1/inpaint", files=files, data=data) for data in ({}, COPIED, COPIED))
    hole = pixels(mask) > 127
    differ = (pixels(plain.content) != pixels(textured.content)).any(-1)
    assert differ[hole].mean() > 0.5
    assert not differ[~hole].any()
    assert textured.content == again.content
    assert textured.headers["x-texture"] == "copied"
    assert "texture;dur=" in textured.headers["server-timing"]
    assert "x-texture" not in plain.headers
    assert "texture" not in plain.headers["server-timing"]


@needs_extension
def test_small_pictures_get_it_on_a_thread_not_on_the_event_loop(
    serve: Serve, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    monkeypatch.setattr(
        "service.computed_request.copy_texture", lambda *_, **__: threads.append(threading.current_thread().name)
    )
    with serve(save=False).client() as client:
        assert client.post("/v1/inpaint", files=files, data=COPIED).status_code == 200
    assert [name.rpartition("_")[0] for name in threads] == ["encode"]


@needs_extension
def test_a_job_and_every_sample_get_it(serve: Serve, files: Files, models_dir: Path, add_model: Any) -> None:
    fields = {"inputs": [image(), mask_spec(), latent()], "output": output()}
    add_model(models_dir, "drawing", "inpaint", **fields)
    asked = {**COPIED, "model": "drawing", "samples": "2", "seed": "7"}
    with serve().client() as client:
        plain = client.post("/v1/inpaint", files=files, data={**asked, "texture": "none"}, headers={"Accept": JSON})
        found = client.post("/v1/inpaint", files=files, data=asked, headers={"Accept": JSON})
        job = client.post("/v1/inpaint", files=files, data=COPIED, headers={"Prefer": "respond-async"})
        done = poll(client, job.headers["location"])
        stored = client.get(done["result_url"]).content
        direct = client.post("/v1/inpaint", files=files, data=COPIED).content
    assert stored == direct
    for one, other in zip(plain.json()["images"], found.json()["images"], strict=True):
        assert one["image_base64"] != other["image_base64"]
    assert found.json()["timings_ms"]["texture"] > 0


@needs_extension
def test_with_the_cache_the_plain_fill_is_not_returned_for_the_other(serve: Serve, files: Files) -> None:
    with serve(cache_entries=10).client() as client:
        replies = [client.post("/v1/inpaint", files=files, data=data) for data in ({}, COPIED, COPIED)]
    assert ["hit" in reply.headers["cache-status"] for reply in replies] == [False, False, True]
    assert [reply.headers.get("x-texture") for reply in replies] == [None, "copied", "copied"]
    assert replies[1].content == replies[2].content


@needs_extension
def test_a_request_with_texture_teaches_the_server_nothing_about_those_without(serve: Serve, files: Files) -> None:
    running = serve()
    with running.client() as client:
        client.post("/v1/inpaint", files=files)
        before = running.service.admission.service_rate.unloaded_s
        client.post("/v1/inpaint", files=files, data=COPIED)
    assert running.service.admission.service_rate.unloaded_s == before


@needs_extension
def test_the_field_is_listed_with_the_model(serve: Serve) -> None:
    with serve().client() as client:
        assert "texture" in inpaint_fields(client)


@pytest.mark.usefixtures("without_extension")
def test_without_the_extension_it_is_refused_and_not_listed_and_plain_fills_go_on(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        refused = client.post("/v1/inpaint", files=files, data=COPIED)
        assert client.post("/v1/inpaint", files=files).status_code == 200
        assert "texture" not in inpaint_fields(client)
    assert (refused.status_code, refused.json()["code"]) == (422, "texture_not_installed")
    assert "C++ compiler" in refused.json()["detail"]


def test_other_tasks_do_not_take_it(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        refused = client.post("/v1/translate", files={"image": files["image"]}, data=COPIED)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_option")
    assert "texture" in refused.json()["detail"]


@needs_extension
def test_where_too_little_is_known_to_copy_from_the_reply_says_none(serve: Serve, files: Files) -> None:
    nearly_all = np.full((64, 64), 255, np.uint8)
    nearly_all[:4] = 0
    files = {**files, "mask": ("mask.png", png(nearly_all), "image/png")}
    with serve(cache_entries=10).client() as client:
        plain, first, cached = (client.post("/v1/inpaint", files=files, data=data) for data in ({}, COPIED, COPIED))
    assert plain.content == first.content == cached.content
    assert [reply.headers.get("x-texture") for reply in (plain, first, cached)] == [None, "none", "none"]


@needs_extension
def test_the_sidecar_says_whether_texture_was_copied(serve: Serve, files: Files) -> None:
    running = serve()
    with running.client() as client:
        ids = [client.post("/v1/inpaint", files=files, data=data).headers["location"][-32:] for data in ({}, COPIED)]
    running.stop()
    folder = running.service.settings.results_dir
    found = [json.loads((folder / one[:2] / f"{one}.json").read_text()).get("texture") for one in ids]
    assert found == [None, "copied"]
