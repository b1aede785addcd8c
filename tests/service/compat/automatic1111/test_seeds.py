"""Several results of one request to AUTOMATIC1111's API: each can be repeated alone with the seed that is told."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.tensor_specs import image, latent, mask, output


@pytest.fixture(params=["alone", "together"])
def client(
    request: pytest.FixtureRequest, serve: Callable[..., Any], models_dir: Path, add_model: Callable[..., Path]
) -> Any:
    """A server whose model `drawing` takes one latent per row, or several."""
    together = request.param == "together"
    fields = {"inputs": [image(), mask(), latent(together=together)], "output": output(together=together)}
    add_model(models_dir, "drawing", "inpaint", **fields)
    with serve(cache_entries=100, apis="automatic1111").client() as client:
        yield client


def ask(client: httpx.Client, files: dict[str, tuple[str, bytes, str]], **fields: int) -> httpx.Response:
    image, mask = (base64.b64encode(files[part][1]).decode() for part in ("image", "mask"))
    model = {"override_settings": {"sd_model_checkpoint": "drawing"}}
    return client.post("/sdapi/v1/img2img", json={"init_images": [image], "mask": mask, **model, **fields})


def fill(
    client: httpx.Client, files: dict[str, tuple[str, bytes, str]], **fields: int
) -> tuple[list[str], dict[str, Any]]:
    """Return the pictures in base64, and `info`."""
    reply = ask(client, files, **fields)
    assert reply.status_code == 200, reply.text
    return reply.json()["images"], json.loads(reply.json()["info"])


def test_the_seeds_of_a_batch_count_up_and_each_gives_its_picture_alone(
    client: httpx.Client, files: dict[str, tuple[str, bytes, str]]
) -> None:
    pictures, info = fill(client, files, seed=7, batch_size=3)
    assert (info["seed"], info["all_seeds"]) == (7, [7, 8, 9])
    assert len(set(pictures)) == 3
    assert [fill(client, files, seed=seed)[0] for seed in info["all_seeds"]] == [[picture] for picture in pictures]


def test_a_stored_picture_of_a_batch_names_its_own_seed(
    client: httpx.Client, files: dict[str, tuple[str, bytes, str]]
) -> None:
    fill(client, files, seed=7, n_iter=2)
    ids = [one["id"] for one in client.get("/v1/results").json()["results"]]
    found = [client.get(f"/v1/results/{one}", headers={"Accept": "application/json"}).json() for one in ids]
    assert sorted((one["seed"], one["sample"]) for one in found) == [(7, 0), (8, 0)]


def test_a_batch_whose_last_seed_could_not_be_asked_for_is_refused(
    client: httpx.Client, files: dict[str, tuple[str, bytes, str]]
) -> None:
    _, info = fill(client, files, seed=2**63 - 2, batch_size=2)
    assert info["all_seeds"][-1] == 2**63 - 1
    refused = ask(client, files, seed=2**63 - 2, batch_size=3)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_option")
    assert "`seed`: the last of 3 results would have a seed above" in refused.json()["detail"]


def test_a_batch_is_not_confused_with_several_samples_of_the_same_seed(
    client: httpx.Client, files: dict[str, tuple[str, bytes, str]]
) -> None:
    asked = {"model": "drawing", "samples": "2", "seed": "7", "quality": "90", "format": "png"}
    native = client.post("/v1/inpaint", files=files, data=asked, headers={"Accept": "application/json"}).json()
    pictures, _ = fill(client, files, seed=7, batch_size=2)
    assert pictures[0] == native["images"][0]["image_base64"]
    assert pictures[1] != native["images"][1]["image_base64"]
