"""The reference checkpoints pass the whole export without options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
import pytest
from PIL import Image

from engines.manifest import read_manifest
from export.parity import onnx_backend
from export.pipeline import ExportRequest, export_model

pytestmark = pytest.mark.slow

GOLDENS = [
    ("dcgan_64_tiny.pth", "dcgan", "generate"),
    ("pix2pix_unet_256_batch_tiny.pth", "pix2pix", "translate"),
    ("pgn_four_tiny.pth", "pgn", "inpaint"),
    ("migan_64_tiny.pth", "migan", "inpaint"),
    ("migan_64_tiny_torchscript.pt", "migan", "inpaint"),
    ("lama_tiny.pth", "lama", "inpaint"),
]
"""The quick reference checkpoints; each family's own test compares the graphs of all of them with the references."""


@pytest.fixture
def one_picture(tmp_path, pictures_dir) -> Path:
    (tmp_path / "pictures").mkdir()
    Image.open(pictures_dir / "dress.jpg").save(tmp_path / "pictures" / "dress.png")
    return tmp_path / "pictures"


@pytest.mark.parametrize(("name", "generator", "task"), GOLDENS)
def test_file_alone_becomes_a_model_that_openvino_runs_alike(name, generator, task, shared_file, one_picture, tmp_path):
    request = ExportRequest((shared_file(f"golden/{name}"),), "golden", one_picture, output=tmp_path / "models")
    exported = export_model(request, lambda _step: None)
    manifest = read_manifest(exported.directory)
    assert (manifest.generator, manifest.task, manifest.precision) == (generator, task, "fp16")
    rng = np.random.default_rng(1)
    sizes = {"batch": 2, "height": 256, "width": 256}
    shapes = {spec.name: [d if isinstance(d, int) else sizes[d] for d in spec.shape] for spec in manifest.inputs}
    feed = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
    graph = exported.directory / "model.onnx"
    compiled = openvino.Core().compile_model(str(graph), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found, wanted = compiled(feed)[0], onnx_backend(graph)(feed)
    assert found.shape == wanted.shape
    assert np.square(found - wanted).mean() < 1e-5
