"""Tiny models that follow the tensor contract: a manifest alone, or a manifest with a real ONNX graph."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engines.manifest import MANIFEST_FILE, ONNX_FILE, Manifest
from export.int8.graph import InputScale, convolutions, to_int8
from tests.serving.fake_models import fake_manifest

MODELS = Path(__file__).resolve().parents[2] / "models"

MakeManifest = Callable[..., Manifest]
PublishModel = Callable[..., Path]


@pytest.fixture
def make_manifest() -> MakeManifest:
    """Return a function that makes a valid manifest; keyword arguments replace fields."""
    return tiny_manifest


@pytest.fixture
def publish(tmp_path: Path) -> PublishModel:
    """Return a function that writes a model directory under tmp_path/models and returns the version directory."""

    def write(manifest: Manifest | None = None, *, onnx_model: bytes | None = None, **fields: Any) -> Path:
        graph = onnx_model if onnx_model is not None else b"no graph"
        digest = hashlib.sha256(graph).hexdigest()
        manifest = manifest or tiny_manifest(**{"onnx_sha256": digest, **fields})
        directory = tmp_path / "models" / manifest.name / str(manifest.version)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / ONNX_FILE).write_bytes(graph)
        (directory / MANIFEST_FILE).write_text(manifest.model_dump_json())
        return directory

    return write


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every write to a new file fail with ENOSPC, as on a full disk."""
    fdopen = os.fdopen

    @contextmanager
    def full(handle: int, mode: str) -> Iterator[Any]:
        def write(_content: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with fdopen(handle, mode) as file:
            yield SimpleNamespace(write=write, fileno=file.fileno)

    monkeypatch.setattr(os, "fdopen", full)


def tiny_manifest(task: str = "inpaint", *, name: str = "tiny", **fields: Any) -> Manifest:
    """Make the manifest of `conv_graph`; keyword arguments replace fields."""
    small = {"kind": "multiple", "multiple_of": 8, "sides": [16, 32]}
    values: dict[str, Any] = {"size": small, "checkpoint_sha256": "1" * 64, "licence": "CC0-1.0", **fields}
    return fake_manifest(name, task, **{"generator": "test", **values})


def conv_graph(
    task: str = "inpaint", *, half: bool = False, size: tuple[int, int] | None = None, gain: float = 1.0
) -> bytes:
    """Make a 3×3 convolution over image and mask, then a sigmoid: it depends on every input but not on other samples.

    Args:
        task: `inpaint` (image and mask) or `translate` (image).
        half: compute in FP16 between casts, as exported FP16 graphs do.
        size: fixed height and width; None for dynamic ones.
        gain: factor on the weights; a large one makes the errors of low precisions visible.
    """
    height, width = size or ("height", "width")
    kind = np.float16 if half else np.float32
    weight = conv_weight(task, gain).astype(kind)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, height, width])
    mask = helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", 1, height, width])
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 3, height, width])
    to_kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    joined = ["image", "mask"] if task == "inpaint" else ["image"]
    nodes = [
        helper.make_node("Concat", joined, ["joined"], axis=1),
        helper.make_node("Cast", ["joined"], ["x"], to=to_kind),
        helper.make_node("Conv", ["x", "weight"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT),
        helper.make_node("Sigmoid", ["z"], ["output"]),
    ]
    inputs = [image, mask] if task == "inpaint" else [image]
    return serialised(nodes, inputs, output, {"weight": weight})


def int8_graph(limit: float = 4.0) -> bytes:
    """Make `conv_graph` with a second convolution, in INT8, before the sigmoid; a low limit cuts its input."""
    model = onnx.load_from_string(conv_graph())
    weight = np.random.default_rng(1).normal(0, 0.2, (3, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "second"))
    sigmoid = model.graph.node[-1]
    sigmoid.input[0] = "last"
    between = helper.make_node("Relu", ["z"], ["active"]), helper.make_node("Conv", ["active", "second"], ["last"])
    between[1].attribute.append(helper.make_attribute("pads", [1, 1, 1, 1]))
    nodes = [*model.graph.node[:-1], *between, sigmoid]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    for node in model.graph.node:
        node.name = node.output[0]
    (layer,) = convolutions(model)
    return to_int8(model, {layer.name: InputScale(limit, np.ones(3, np.float32))}).SerializeToString()


QUANTISATION = {
    "calibration": "photographs",
    "calibration_sha256": "2" * 64,
    "pictures": 64,
    "seed": 0,
    "int8_layers": 1,
    "kept": [{"name": "/net/stem/Conv", "alone_db": 31.5}],
    "gate": {
        "pictures": 100,
        "engine": "openvino int8",
        "psnr_db": 40.0,
        "worst_psnr_db": 29.0,
        "lpips": 0.1,
        "lpips_fp32": 0.1,
    },
}
"""Manifest field that records how an INT8 model was made."""
INT8 = {"precision": "int8", "quantisation": QUANTISATION, "parity": {"bar_db": 28.0, "cases": []}}
"""Fields of the manifest of `int8_graph`."""


SEVERAL_SAMPLES = {
    "inputs": [
        {"name": "image", "dtype": "float32", "shape": ["batch", 3, "height", "width"]},
        {"name": "mask", "dtype": "float32", "shape": ["batch", 1, "height", "width"]},
        {"name": "latent", "dtype": "float32", "shape": ["batch", "samples", 8]},
    ],
    "output": {"name": "output", "dtype": "float32", "shape": ["batch", "samples", 3, "height", "width"]},
}
"""Fields of the manifest of `several_samples_graph`."""


def several_samples_graph() -> bytes:
    """Make `conv_graph` with several latents a row: a row has an output for each latent, whose mean is added to it."""
    sizes: dict[str, list[str | int]] = {
        "image": ["batch", 3, "height", "width"],
        "mask": ["batch", 1, "height", "width"],
        "latent": ["batch", "samples", 8],
        "output": ["batch", "samples", 3, "height", "width"],
    }
    *inputs, output = (helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in sizes.items())
    nodes = [
        helper.make_node("Concat", ["image", "mask"], ["x"], axis=1),
        helper.make_node("Conv", ["x", "weight"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Unsqueeze", ["y", "sample"], ["rows"]),
        helper.make_node("ReduceMean", ["latent"], ["mean"], axes=[2], keepdims=0),
        helper.make_node("Unsqueeze", ["mean", "pixel"], ["brighter"]),
        helper.make_node("Add", ["rows", "brighter"], ["z"]),
        helper.make_node("Sigmoid", ["z"], ["output"]),
    ]
    axes = {"sample": np.array([1]), "pixel": np.array([2, 3, 4])}
    return serialised(nodes, inputs, output, {"weight": conv_weight(), **axes})


def conv_weight(task: str = "inpaint", gain: float = 1.0) -> np.ndarray:
    """Return the convolution weights of `conv_graph`, float32 3×C×3×3."""
    channels = 4 if task == "inpaint" else 3
    return (np.random.default_rng(7).normal(0, 0.3, (3, channels, 3, 3)) * gain).astype(np.float32)


def serialised(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    output: onnx.ValueInfoProto,
    weights: dict[str, np.ndarray],
) -> bytes:
    """Serialise nodes as a checked opset-17 model."""
    initialisers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), "tiny", list(inputs), [output], initialisers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def shipped(name: str) -> Path:
    """Return the folder of the newest version of a model that ships with the repository."""
    return max((MODELS / name).iterdir(), key=lambda version: int(version.name))
