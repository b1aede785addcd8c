"""Error messages give clients the reason, but no path of the host."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.errors import EngineUnavailable
from engines.fake import FakeEngine
from engines.manifest import Manifest
from service.telemetry.redaction import without_folders
from tests.serving.waiting import wait_until

Serve = Callable[..., Any]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/srv/models/photos/2/manifest.json: not JSON", "manifest.json: not JSON"),
        ("Load from '/srv/models/a/1/model.onnx' failed", "Load from 'model.onnx' failed"),
        ("libcudnn.so.9 (/usr/lib/x86/libcudnn.so.9, /opt/b.so)", "libcudnn.so.9 (libcudnn.so.9, b.so)"),
        ("no model a; available: none in /srv/models", "no model a; available: none in models"),
        ("models/photos/2/manifest.json: not JSON", "manifest.json: not JSON"),
        ("./models/photos: gone", "photos: gone"),
        ("../models: gone", "models: gone"),
        ("~/models: gone", "models: gone"),
        ("shared models/photos.onnx: gone", "shared photos.onnx: gone"),
        ("Load model from models/photos/5/model.onnx failed:Protobuf", "Load model from model.onnx failed:Protobuf"),
        ('read the model: "models/photos/5/model.onnx" Please', 'read the model: "model.onnx" Please'),
        ("read '/srv/my models/a/1/model.onnx' now", "read 'model.onnx' now"),
        ("read 'my models/a/1/model.onnx' now", "read 'model.onnx' now"),
        ("not found: file:///srv/models/a", "not found: a"),
        ("(trt/fp16: models/a/1/model.plan)", "(trt/fp16: model.plan)"),
        (
            "openvino: Exception from src/inference/src/cpp/core.cpp:132: Exception from src/model_reader.cpp:148: Bad",
            "openvino: Bad",
        ),
        ("failed: /onnxruntime_src/onnxruntime/core/graph/model.cc:182 Load failed", "failed: Load failed"),
    ],
)
def test_a_path_is_shortened_to_its_last_part(said: str, told: str) -> None:
    assert without_folders(said) == told


@pytest.mark.parametrize(
    "said",
    [
        "photos/2 on openvino/fp32: see https://host/path/of/page.html",
        "models photos/2, photos/1.",
        "it isn't openvino/fp32, doesn't it",
        "and/or 45 dB (onnx-fp16, batch of 3)",
        "input image: float32 1/3 of ×8, 16",
        "see s3://bucket/prefix/name.png and http://127.0.0.1:8000/v1/models",
    ],
)
def test_what_is_no_path_stays_as_it_is(said: str) -> None:
    assert without_folders(said) == said


@given(st.text(alphabet="ab/.' :\"~-", max_size=60))
def test_redacted_messages_have_no_absolute_path_and_are_not_longer(said: str) -> None:
    told = without_folders(f"/srv/secret/x {said} ../secret/y")
    assert "secret" not in told
    assert len(told) <= len(said) + 4


@pytest.mark.parametrize("piece", ["'", "/a", "a/", "'/a", ".", "a.cpp:1 ", "~/"])
def test_long_messages_cost_no_time(piece: str) -> None:
    begun = time.process_time()
    without_folders(piece * 20_000)
    assert time.process_time() - begun < 2


def test_clients_of_a_server_with_a_relative_folder_hear_no_path(
    serve: Serve, models_dir: Path, files: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models_dir.parent)
    (Path("models") / "photos/1/manifest.json").write_text("{}")
    long_ago = time.time() - 60
    for path in Path("models").rglob("*"):
        os.utime(path, (long_ago, long_ago))
    with serve(models_dir=Path("models")).client() as client:
        replies = [client.get("/v1/models"), client.post("/v1/inpaint", files=files)]
    for reply in replies:
        assert "manifest.json" in reply.text
        assert "models/photos" not in reply.text


def test_clients_hear_why_a_model_is_refused_and_not_where_it_is(
    serve: Serve, models_dir: Path, files: dict[str, Any]
) -> None:
    def refused(_manifest: Manifest) -> FakeEngine:
        raise EngineUnavailable(f"{models_dir}/photos/1/model.onnx: its graph is broken")

    long_ago = time.time() - 60
    for path in models_dir.rglob("*"):  # old enough not to count as half-written
        os.utime(path, (long_ago, long_ago))
    with serve(refused, wait=False).client() as client:
        wait_until(lambda: "loading" not in client.get("/readyz").text)
        replies = [client.get("/v1/models"), client.get("/readyz"), client.post("/v1/inpaint", files=files)]
    for reply in replies:
        assert "model.onnx: its graph is broken" in reply.text
        assert str(models_dir) not in reply.text


def test_clients_that_ask_for_a_refused_model_hear_no_folder_either(
    serve: Serve, models_dir: Path, add_model: Callable[..., Path], files: dict[str, Any]
) -> None:
    directory = add_model(models_dir, "photos", "inpaint", version=2)
    (directory / "manifest.json").write_text("{}")
    long_ago = time.time() - 60
    for path in (directory, directory / "manifest.json"):
        os.utime(path, (long_ago, long_ago))
    with serve().client() as client:
        reply = client.post("/v1/inpaint", files=files, data={"model": "photos/2"})
    assert (reply.status_code, reply.json()["code"]) == (404, "model_not_found")
    assert "manifest.json" in reply.text
    assert str(models_dir) not in reply.text
