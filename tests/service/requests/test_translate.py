"""Label maps, instance maps, grey pictures and colours, over a real socket."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.serving.image_files import png, saved
from tests.serving.tensor_specs import image, instance, label, output, reference

Serve = Callable[..., Any]
RANDOM = np.random.default_rng(0)
SIZE_64 = {"kind": "fixed", "height": 64, "width": 64}


@pytest.fixture(autouse=True)
def models(models_dir: Path, add_model: Callable[..., Path]) -> None:
    def add(name: str, **fields: Any) -> None:
        add_model(models_dir, name, "translate", **{"size": SIZE_64, **fields})

    add("streets", inputs=[label(35), instance()])
    add("dressed", inputs=[label(35), instance(), reference()])
    add("labels", inputs=[label()])
    add("drawn", inputs=[image(1)], output=output(1))
    add("painted", inputs=[image(1, colours="lightness")], output=output(2, colours="ab"))
    add("unclear", inputs=[image(1)], output=output(2))


def pixels(body: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(body)))


def test_class_and_16_bit_instance_ids_reach_the_model_exactly(serve: Serve) -> None:
    labels = RANDOM.integers(0, 35, (64, 64, 1), np.uint8)
    ids = RANDOM.integers(0, 65536, (64, 64, 1), np.uint16)
    ids[0, :2, 0] = 33_999, 34_000
    with serve().client() as client:
        reply = client.post(
            "/v1/translate", files={"image": png(labels), "instance": png(ids)}, data={"model": "streets"}
        )
    assert reply.status_code == 200, reply.text
    echoed = pixels(reply.content).astype(int)
    np.testing.assert_array_equal(echoed[:, :, 0], labels[:, :, 0])
    np.testing.assert_array_equal(echoed[:, :, 1] + 256 * echoed[:, :, 2], ids[:, :, 0])


def test_scaled_maps_hold_no_ids_but_their_own(serve: Serve) -> None:
    labels = np.zeros((200, 300, 1), np.uint8)
    labels[50:150, 100:200] = 34
    ids = np.full((200, 300, 1), 1000, np.uint16)
    ids[50:150, 100:200] = 26_007
    seen: list[dict[str, np.ndarray]] = []
    from engines.fake import FakeEngine  # noqa: PLC0415 -- beside what it spies with

    def spying(manifest: Any) -> FakeEngine:
        return FakeEngine(manifest, fault=lambda feed: seen.append(dict(feed)))

    with serve(spying).client() as client:
        seen.clear()
        reply = client.post(
            "/v1/translate", files={"image": png(labels), "instance": png(ids)}, data={"model": "streets"}
        )
    assert pixels(reply.content).shape == (200, 300, 3)
    (feed,) = seen
    assert (feed["label"].dtype, feed["instance"].dtype) == (np.dtype(np.uint8), np.dtype(np.int32))
    assert feed["label"].shape == feed["instance"].shape == (1, 1, 64, 64)
    assert set(np.unique(feed["label"])) == {0, 34}
    assert set(np.unique(feed["instance"])) == {1000, 26_007}
    np.testing.assert_array_equal(feed["label"] == 34, feed["instance"] == 26_007)


@pytest.mark.parametrize("side", [64, 96])
def test_a_reference_reaches_the_model_as_a_picture_of_its_tile(serve: Serve, side: int) -> None:
    photo = np.full((side, side, 3), (255, 51, 0), np.uint8)
    ids = png(np.full((side, side, 1), 7, np.uint8))
    seen: list[dict[str, np.ndarray]] = []
    from engines.fake import FakeEngine  # noqa: PLC0415 -- beside what it spies with

    def spying(manifest: Any) -> FakeEngine:
        return FakeEngine(manifest, fault=lambda feed: seen.append(dict(feed)))

    with serve(spying).client() as client:
        seen.clear()
        files = {"image": ids, "instance": ids, "reference": png(photo)}
        reply = client.post("/v1/translate", files=files, data={"model": "dressed"})
    assert reply.status_code == 200, reply.text
    (feed,) = seen
    assert (feed["reference"].dtype, feed["reference"].shape) == (np.dtype(np.float32), (1, 3, 64, 64))
    np.testing.assert_allclose(
        feed["reference"][0].reshape(3, -1).T, np.tile([[1.0, 0.2, 0.0]], (64 * 64, 1)), atol=1e-6
    )


def test_a_palette_map_is_its_indices(serve: Serve) -> None:
    values = RANDOM.integers(0, 256, (64, 64), np.uint8)
    picture = Image.fromarray(values, "L")
    picture.putpalette(bytes(RANDOM.integers(0, 256, 768, np.uint8)))
    file = io.BytesIO()
    picture.save(file, "PNG")
    with serve().client() as client:
        reply = client.post("/v1/translate", files={"image": file.getvalue()}, data={"model": "labels"})
    np.testing.assert_array_equal(pixels(reply.content)[:, :, 0], values)


def test_what_is_wrong_with_maps_is_named(serve: Serve) -> None:
    good = png(np.full((64, 64, 1), 34, np.uint8))
    bad = png(np.full((64, 64, 1), 35, np.uint8))
    small = png(np.zeros((32, 64, 1), np.uint8))
    photo = saved(RANDOM.integers(0, 256, (64, 64, 3), np.uint8), "JPEG")
    cases: list[tuple[str, dict[str, bytes], int, str, str]] = [
        (
            "streets",
            {"image": bad, "instance": good},
            422,
            "unknown_class",
            "class id 35; the model's classes are 0 to 34",
        ),
        ("streets", {"image": good}, 400, "missing_part", "`instance` is missing"),
        ("streets", {"image": good, "instance": b""}, 400, "empty_part", "`instance` is empty"),
        ("streets", {"image": good, "instance": small}, 400, "sizes_differ", "64×64 and the instance map 64×32"),
        ("streets", {"image": photo, "instance": good}, 415, "not_ids", "JPEG, which does not keep ids exact"),
        ("streets", {"image": good, "instance": good, "reference": photo}, 422, "reference_not_taken", "leave it out"),
        ("dressed", {"image": good, "instance": good}, 400, "missing_part", "`reference` is missing"),
        ("dressed", {"image": good, "instance": good, "reference": small}, 400, "sizes_differ", "the reference 64×32"),
        ("dressed", {"image": good, "instance": good, "reference": b"?"}, 415, "unsupported_type", "of unknown type"),
        ("labels", {"image": good, "instance": good}, 422, "instance_not_taken", "does not accept `instance`"),
        ("facades", {"image": good, "instance": good}, 422, "instance_not_taken", "leave it out"),
        ("unclear", {"image": good}, 422, "not_a_picture", "has 2 output channels, which are not a picture"),
    ]
    with serve().client() as client:
        for model, files, status, code, said in cases:
            reply = client.post("/v1/translate", files=files, data={"model": model})
            assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
            assert said in reply.json()["detail"]


def test_a_file_that_nobody_chose_in_a_browsers_form_is_not_sent(serve: Serve) -> None:
    field = 'Content-Disposition: form-data; name="{}"{}\r\n{}\r\n'
    chosen, empty = '; filename="a.png"', '; filename=""'
    kind = "Content-Type: application/octet-stream\r\n"
    fields = [("model", "", "", b"labels"), ("image", chosen, kind, png(np.zeros((64, 64, 1), np.uint8)))]
    left = [("instance", empty, kind, b""), ("reference", empty, kind, b"")]

    def body(parts: list[tuple[str, str, str, bytes]]) -> bytes:
        pieces = [b"--b\r\n" + field.format(*head).encode() + data + b"\r\n" for *head, data in parts]
        return b"".join(pieces) + b"--b--\r\n"

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    with serve().client() as client:
        reply = client.post("/v1/translate", content=body(fields + left), headers=headers)
        assert reply.status_code == 200, reply.text
        without = client.post("/v1/translate", content=body([fields[0], ("image", empty, kind, b"")]), headers=headers)
        assert (without.status_code, without.json()["code"]) == (400, "missing_part")


def test_a_one_channel_model_takes_any_picture_as_grey_and_gives_grey(serve: Serve) -> None:
    grey = RANDOM.integers(0, 256, (64, 64, 1), np.uint8)
    with serve().client() as client:
        for sent in (png(grey), png(np.repeat(grey, 3, axis=2))):
            reply = client.post("/v1/translate", files={"image": sent}, data={"model": "drawn"})
            assert Image.open(io.BytesIO(reply.content)).mode == "L"
            np.testing.assert_allclose(pixels(reply.content), 255 - grey[:, :, 0].astype(int), atol=1)


def test_a_colouring_model_keeps_the_lightness_of_the_upload(serve: Serve) -> None:
    grey = np.full((100, 80, 1), 119, np.uint8)  # L = 50; its negative, taken as ab, is no colour
    with serve().client() as client:
        reply = client.post("/v1/translate", files={"image": png(grey)}, data={"model": "painted"})
    assert reply.status_code == 200, reply.text
    assert pixels(reply.content).shape == (100, 80, 3)
    np.testing.assert_allclose(pixels(reply.content), 119, atol=3)


def test_models_tell_what_they_take(serve: Serve) -> None:
    with serve().client() as client:
        models = {model["name"]: model["takes"] for model in client.get("/v1/models").json()["models"]}
    assert [part["name"] for part in models["streets"]["parts"]] == ["image", "instance"]
    assert [part["name"] for part in models["dressed"]["parts"]] == ["image", "instance", "reference"]
    assert models["streets"]["endpoint"] == "/v1/translate"
    assert models["streets"]["refused"] is None
    assert "2 output channels" in models["unclear"]["refused"]
