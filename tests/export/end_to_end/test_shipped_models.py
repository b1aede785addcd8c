"""The models in the repository are complete, small enough for git, and finite on every mask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from engines.manifest import read_manifest
from export.checkpoint import sha256_of
from export.generators import FAMILIES
from export.onnx_graph import check_graph
from export.parity import FP16, FP32, missed_bars, onnx_backend
from export.parity_inputs import find_pictures, parity_inputs

pytestmark = pytest.mark.slow

MODELS = Path(__file__).resolve().parents[3] / "models"
DIRECTORIES = sorted(path.parent for path in MODELS.glob("*/*/manifest.json"))


def test_there_is_a_model_for_every_task():
    assert {read_manifest(directory).task for directory in DIRECTORIES} == {"inpaint", "translate", "generate"}


def test_all_models_of_a_checkout_together_stay_small():
    assert sum((directory / "model.onnx").stat().st_size for directory in DIRECTORIES) <= 160_000_000


@pytest.fixture(params=DIRECTORIES, ids=lambda directory: "/".join(directory.parts[-2:]))
def directory(request):
    return request.param


@pytest.fixture
def manifest(directory):
    return read_manifest(directory)


@pytest.fixture
def described(manifest):
    family = FAMILIES[manifest.generator]
    options = family.options.model_validate(manifest.options)
    return family, options, family.interface(options)


def test_manifest_describes_the_files_beside_it(directory, manifest):
    graph = directory / "model.onnx"
    assert manifest.key == "/".join(directory.parts[-2:])
    assert manifest.onnx_sha256 == sha256_of(graph)
    assert graph.stat().st_size <= 60_000_000
    assert manifest.licence in (directory / "card.md").read_text("utf-8")


def test_graph_keeps_the_tensor_contract_in_opset_17_with_half_weights(directory, manifest, described):
    _, _, interface = described
    size = manifest.size.model_copy(update={"auto": None})  # measured after the export
    assert (manifest.inputs, manifest.output, size) == (interface.inputs, interface.output, interface.size)
    check_graph(directory / "model.onnx", interface)
    weights = [t for t in onnx.load(directory / "model.onnx").graph.initializer if np.prod(t.dims) > 10_000]
    assert {tensor.data_type for tensor in weights} == {onnx.TensorProto.FLOAT16}


def test_reported_parity_meets_the_bars(manifest, described):
    family, options, _ = described
    assert {case.backend for case in manifest.parity.cases} == {FP16, FP32}
    assert missed_bars(manifest.parity.cases, family.bars(options)) == []


def test_outputs_are_finite_on_every_sample(directory, described, pictures_dir):
    run = onnx_backend(directory / "model.onnx")
    for sample in parity_inputs(described[2], find_pictures(pictures_dir)[:1], np.random.default_rng(1)):
        if sample.name != "batch of 3":
            assert np.isfinite(run(sample.feed)).all(), sample.name
