"""Several results of one request: seeds, forms of the reply, batches, and clients that leave."""

from __future__ import annotations

import asyncio
import base64
import email
import email.policy
import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from engines.base import Feed
from engines.fake import FakeEngine, Fault, Hang
from engines.manifest import Manifest
from service.admission.memory_budget import MemoryBudget
from tests.service.web.replies import poll
from tests.serving.tensor_specs import image, latent, mask, output
from tests.serving.waiting import until

Files = dict[str, tuple[str, bytes, str]]
Serve = Callable[..., Any]
MIXED = {"Accept": "multipart/mixed"}
JSON = {"Accept": "application/json"}


@pytest.fixture(params=["alone", "together"])
def drawing(request: pytest.FixtureRequest, models_dir: Path, add_model: Callable[..., Path]) -> str:
    """A diverse inpainting model that takes one latent per row, or several."""
    together = request.param == "together"
    fields = {"inputs": [image(), mask(), latent(together=together)], "output": output(together=together)}
    add_model(models_dir, "drawing", "inpaint", **fields)
    return "drawing"


def pixels(body: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(body)))


def parts_of(response: httpx.Response) -> list[tuple[dict[str, str], bytes]]:
    """Return the parts of a multipart/mixed body, read with Python's email parser."""
    assert response.headers["content-type"].startswith("multipart/mixed; boundary=")
    head = f"Content-Type: {response.headers['content-type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + response.content, policy=email.policy.HTTP)
    assert message.is_multipart()
    assert not message.defects
    found = []
    for part in message.iter_parts():
        body = part.get_payload(decode=True)
        assert isinstance(body, bytes)
        found.append(({name.lower(): str(value) for name, value in part.items()}, body))
    return found


def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_picture(
    serve: Serve, files: Files, drawing: str, photo: bytes, mask: bytes
) -> None:
    with serve().client() as client:
        replies = [
            client.post("/v1/inpaint", files=files, data={"model": drawing, "seed": seed}) for seed in ("7", "7", "8")
        ]
    first, again, other = (reply.content for reply in replies)
    assert first == again != other
    assert [reply.headers["x-seed"] for reply in replies] == ["7", "7", "8"]
    hole = pixels(mask) >= 128
    np.testing.assert_array_equal(pixels(first)[~hole], pixels(photo)[~hole])
    assert (pixels(first)[hole] != pixels(other)[hole]).any()


def test_a_seed_that_is_not_given_is_drawn_once_and_told(serve: Serve, files: Files, drawing: str) -> None:
    running = serve()
    seeds = iter([11, 12])
    running.service.pipeline.new_seed = lambda: next(seeds)
    with running.client() as client:
        drawn = client.post("/v1/inpaint", files=files, data={"model": drawing, "samples": "3"}).json()
        assert drawn["seed"] == 11
        again = client.post(
            "/v1/inpaint", files=files, data={"model": drawing, "samples": "3", "seed": "11"}, headers=JSON
        ).json()
        assert [i["image_base64"] for i in drawn["images"]] == [i["image_base64"] for i in again["images"]]
        assert client.post("/v1/inpaint", files=files, data={"model": drawing}).headers["x-seed"] == "12"


def test_seeds_that_are_drawn_differ(serve: Serve, files: Files, drawing: str) -> None:
    with serve().client() as client:
        seeds = {client.post("/v1/inpaint", files=files, data={"model": drawing}).headers["x-seed"] for _ in range(4)}
    assert len(seeds) == 4


def test_samples_differ_and_each_is_what_it_is_in_any_number_of_them(serve: Serve, files: Files, drawing: str) -> None:
    def asked(client: httpx.Client, samples: int) -> list[bytes]:
        data = {"model": drawing, "samples": str(samples), "seed": "3"}
        return [body for _, body in parts_of(client.post("/v1/inpaint", files=files, data=data, headers=MIXED))]

    with serve().client() as client:
        eight, two = asked(client, 8), asked(client, 2)
        one = client.post("/v1/inpaint", files=files, data={"model": drawing, "seed": "3"}, headers=MIXED)
    assert len(set(eight)) == 8
    assert two == eight[:2]
    assert one.headers["content-type"] == "image/png"
    assert one.content == eight[0]


def test_json_and_multipart_hold_the_same_each_stored_with_its_sidecar(
    serve: Serve, files: Files, drawing: str, tmp_path: Path
) -> None:
    running = serve()
    data = {"model": drawing, "samples": "3", "seed": "3", "format": "webp"}
    with running.client() as client:
        mixed = client.post("/v1/inpaint", files=files, data=data, headers=MIXED)
        as_json = client.post("/v1/inpaint", files=files, data=data)
        parts = parts_of(mixed)
        assert [head["content-type"] for head, _ in parts] == ["image/webp"] * 3
        assert [int(head["content-length"]) for head, _ in parts] == [len(body) for _, body in parts]
        stored = [client.get(head["location"]).content for head, _ in parts]
        assert stored == [body for _, body in parts]
        body = as_json.json()
        assert [base64.b64decode(one["image_base64"]) for one in body["images"]] == stored
        assert (body["media_type"], body["width"], body["height"], body["seed"]) == ("image/webp", 64, 64, 3)
        urls = [one["result_url"] for one in body["images"]] + [head["location"] for head, _ in parts]
        assert len(set(urls)) == 6
        sidecars = [client.get(url, headers=JSON).json() for url in urls[:3]]
        assert [(sidecar["seed"], sidecar["sample"]) for sidecar in sidecars] == [(3, 0), (3, 1), (3, 2)]
    for reply in (mixed, as_json):
        assert "location" not in reply.headers
        assert (reply.headers["x-seed"], reply.headers["x-model"]) == ("3", "drawing/1")
        stages = [part.split(";")[0] for part in reply.headers["server-timing"].split(", ")]
        assert stages == ["memory", "decode", "preprocess", "queue", "infer", "postprocess", "encode"]
    running.service.store.flush(10)
    assert len(list((tmp_path / "results").rglob("*.webp"))) == 6


def test_unsaved_samples_have_no_location(serve: Serve, files: Files, drawing: str) -> None:
    data = {"model": drawing, "samples": "2", "save": "false"}
    with serve().client() as client:
        parts = parts_of(client.post("/v1/inpaint", files=files, data=data, headers=MIXED))
        assert all("location" not in head for head, _ in parts)
        images = client.post("/v1/inpaint", files=files, data=data).json()["images"]
        assert [one["result_url"] for one in images] == [None, None]


def test_a_spool_without_room_for_all_samples_takes_none(serve: Serve, files: Files, drawing: str) -> None:
    running = serve(spool_max_items=3)
    with running.client() as client:
        refused = client.post("/v1/inpaint", files=files, data={"model": drawing, "samples": "4"})
        assert (refused.status_code, refused.json()["code"]) == (503, "spool_full")
        assert running.service.store.pending == 0
        assert client.post("/v1/inpaint", files=files, data={"model": drawing, "samples": "3"}).status_code == 200


def test_a_job_of_several_samples_tells_all_results(serve: Serve, files: Files, drawing: str) -> None:
    data = {"model": drawing, "samples": "2", "seed": "1"}
    with serve().client() as client:
        direct = client.post("/v1/inpaint", files=files, data=data).json()["images"]
        url = client.post("/v1/inpaint", files=files, data=data, headers={"Prefer": "respond-async"}).headers[
            "location"
        ]
        job = poll(client, url)
        assert job["status"] == "succeeded", job
        assert job["result_url"] == job["result_urls"][0]
        stored = [client.get(url).content for url in job["result_urls"]]
    assert stored == [base64.b64decode(one["image_base64"]) for one in direct]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"samples": "9"}, "invalid_option"),
        ({"samples": "0"}, "invalid_option"),
        ({"samples": "many"}, "invalid_option"),
        ({"seed": "-1"}, "invalid_option"),
        ({"seed": str(2**63)}, "invalid_option"),
        ({"count": "2"}, "invalid_option"),
    ],
)
def test_what_cannot_be_asked_for_is_422(serve: Serve, files: Files, data: dict[str, str], code: str) -> None:
    with serve().client() as client:
        response = client.post("/v1/inpaint", files=files, data=data)
    assert (response.status_code, response.json()["code"]) == (422, code), response.text


def test_a_model_that_draws_nothing_ignores_the_seed_and_tells_none(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        first, second = (client.post("/v1/inpaint", files=files, data={"seed": seed}) for seed in ("1", "2"))
        body = client.post("/v1/inpaint", files=files, data={"samples": "1"}, headers=JSON).json()
    assert first.content == second.content
    assert "x-seed" not in first.headers
    assert body["seed"] is None


def test_a_translation_that_draws_its_style_has_samples_too(
    serve: Serve, files: Files, models_dir: Path, add_model: Callable[..., Path]
) -> None:
    add_model(models_dir, "styled", "translate", inputs=[image(), latent()], output=output())
    data = {"model": "styled", "samples": "2", "seed": "7"}
    with serve().client() as client:
        body = client.post("/v1/translate", files={"image": files["image"]}, data=data, headers=JSON).json()
    assert (len(body["images"]), body["seed"]) == (2, 7)


def test_each_sample_beyond_the_first_takes_memory_for_its_tile_and_its_result(
    serve: Serve, files: Files, models_dir: Path, add_model: Callable[..., Path]
) -> None:
    add_model(models_dir, "styled", "translate", inputs=[image(), latent()], output=output())
    budgets, granted = list[MemoryBudget](), list[int]()

    def look(_: Feed) -> None:
        granted.extend(budget.granted_bytes for budget in budgets)

    running = serve(lambda manifest: FakeEngine(manifest, fault=look))
    budgets.append(running.service.pipeline.memory)
    seen = []
    with running.client() as client:
        for samples in ("1", "8"):
            data = {"model": "styled", "samples": samples}
            reply = client.post("/v1/translate", files={"image": files["image"]}, data=data)
            assert reply.status_code == 200
            seen.append(max(granted))
    assert seen[1] - seen[0] == 7 * 2 * 64 * 64 * 3


def test_samples_of_a_request_share_its_batches(serve: Serve, files: Files, drawing: str) -> None:
    running = serve(lambda manifest: FakeEngine(manifest, batch_s=0.05), max_batch_size=4)
    engine = next(engine for engine in running.engines if engine.manifest.name == drawing)
    before = engine.batches
    with running.client() as client:
        reply = client.post("/v1/inpaint", files=files, data={"model": drawing, "samples": "8"})
    if engine.manifest.samples_together:
        assert (engine.batches - before, reply.json()["batch_size"]) == (1, 1), "one row holds them all"
    else:
        assert engine.batches - before in (2, 3), "4 + 4, or 1 + 4 + 3 where the worker was quicker"
        assert reply.headers["x-batch-size"] == "4"


class Held:
    """An engine fault that holds the first batch after it is armed."""

    def __init__(self) -> None:
        self.armed = False
        self.release = threading.Event()
        self.batches: list[int] = []

    def engine(self, manifest: Manifest) -> FakeEngine:
        return FakeEngine(manifest, fault=self._fault)

    def _fault(self, feed: Feed) -> Fault | None:
        if not self.armed:
            return None
        self.batches.append(len(next(iter(feed.values()))))
        return Hang(self.release) if len(self.batches) == 1 else None


async def test_of_several_requests_in_a_queue_the_one_that_is_left_is_withdrawn_alone(
    serve: Serve, files: Files, models_dir: Path, add_model: Callable[..., Path]
) -> None:
    add_model(models_dir, "drawing", "inpaint", inputs=[image(), mask(), latent()])
    held = Held()
    running = serve(held.engine, request_timeout_s=30)
    held.armed = True
    data = {"model": "drawing", "seed": "5"}
    queue = running.service.pipeline.batcher

    async with running.async_client() as client:
        first = asyncio.create_task(client.post("/v1/inpaint", files=files, data=data))
        await until(lambda: len(held.batches) == 1)
        leaving = asyncio.create_task(client.post("/v1/inpaint", files=files, data={**data, "samples": "5"}))
        await until(lambda: len(queue) == 5)
        staying = asyncio.create_task(client.post("/v1/inpaint", files=files, data={**data, "samples": "2"}))
        await until(lambda: len(queue) == 7)
        leaving.cancel()
        await until(lambda: len(queue) == 2)
        held.release.set()
        assert (await first).status_code == 200
        images = json.loads((await staying).content)["images"]
    assert base64.b64decode(images[0]["image_base64"]) == (await first).content
    assert held.batches == [1, 2], "the samples of the client that left were never computed"
