"""Clients hear why, and no folder of the host."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engines.errors import EngineUnavailable
from engines.fake import FakeEngine
from engines.manifest import Manifest
from service.host_paths import without_folders

Serve = Callable[..., Any]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/srv/models/photos/2/manifest.json: not JSON", "manifest.json: not JSON"),
        ("Load from '/srv/models/a/1/model.onnx' failed", "Load from 'model.onnx' failed"),
        ("libcudnn.so.9 (/usr/lib/x86/libcudnn.so.9, /opt/b.so)", "libcudnn.so.9 (libcudnn.so.9, b.so)"),
        ("no model a; available: none in /srv/models", "no model a; available: none in models"),
    ],
)
def test_an_absolute_path_is_told_as_its_last_part(said: str, told: str) -> None:
    assert without_folders(said) == told


def test_what_is_no_absolute_path_stays_as_it_is() -> None:
    said = "photos/2 on openvino/fp32: see https://host/path and ../a/b"
    assert without_folders(said) == said


def test_clients_hear_why_a_model_is_refused_and_not_where_it_is(
    serve: Serve, models_dir: Path, files: dict[str, Any]
) -> None:
    def refused(_manifest: Manifest) -> FakeEngine:
        raise EngineUnavailable(f"{models_dir}/photos/1/model.onnx: its graph is broken")

    long_ago = time.time() - 60
    for path in models_dir.rglob("*"):  # no file of it is still being written
        os.utime(path, (long_ago, long_ago))
    with serve(refused, wait=False).client() as client:
        end = time.monotonic() + 60
        while "loading" in client.get("/readyz").text:
            assert time.monotonic() < end
            time.sleep(0.01)
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
