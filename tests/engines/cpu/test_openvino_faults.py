"""A graph that OpenVINO never finishes compiling in bf16 is computed in FP32, and a message names it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from engines.base import BatchShape, blank_feed
from engines.cpu.openvino_cpu import OpenVinoEngine
from engines.cpu.openvino_faults import endless_in_bf16
from engines.manifest import read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from tests.engines.conftest import serialised

openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed; it needs no GPU")


def depthwise_graph(channels: int, height: int, width: int, groups: int | None = None) -> bytes:
    """Make a graph that blurs by one convolution over `channels` copies of the first channel; the mask is unused."""
    groups = groups or channels
    blur = np.full((channels, channels // groups, height, width), 1 / (height * width), np.float32)
    spread = np.zeros((channels, 3, 1, 1), np.float32)
    spread[:, 0] = 1
    gather = np.zeros((3, channels, 1, 1), np.float32)
    gather[:, 0] = 1
    sides = ["batch", "height", "width"]
    image, mask, output = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [sides[0], count, *sides[1:]])
        for name, count in (("image", 3), ("mask", 1), ("output", 3))
    )
    pads = [height // 2, width // 2, (height - 1) // 2, (width - 1) // 2]
    nodes = [
        helper.make_node("Conv", ["image", "spread"], ["x"]),
        helper.make_node("Conv", ["x", "blur"], ["y"], name="blurring", group=groups, pads=pads),
        helper.make_node("Conv", ["y", "gather"], ["z"]),
        helper.make_node("Mul", ["mask", "zero"], ["nothing"]),
        helper.make_node("Add", ["z", "nothing"], ["output"]),
    ]
    weights = {"spread": spread, "blur": blur, "gather": gather, "zero": np.zeros(1, np.float32)}
    return serialised(nodes, [image, mask], output, weights)


@pytest.mark.parametrize(
    ("channels", "height", "width", "groups", "named"),
    [
        (3, 1, 15, None, True),
        (16, 15, 15, None, True),
        (2, 3, 91, None, True),
        (3, 1, 14, None, False),
        (3, 91, 1, None, False),
        (17, 1, 15, None, False),
        (16, 1, 15, 8, False),
        (16, 1, 15, 1, False),
    ],
)
def test_narrow_depthwise_layers_with_wide_kernels_are_named_and_no_others(
    channels: int, height: int, width: int, groups: int | None, named: bool, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(depthwise_graph(channels, height, width, groups))
    found = endless_in_bf16(openvino.Core().read_model(str(tmp_path / "model.onnx")))
    assert found == ("blurring" if named else "")


def test_graph_with_such_a_layer_is_computed_in_fp32(publish, tmp_path):
    directory = publish(onnx_model=depthwise_graph(3, 1, 15))
    manifest = read_manifest(directory)
    feed = blank_feed(manifest, BatchShape(1, 32, 32))
    feed["image"][:] = np.random.default_rng(3).random(feed["image"].shape, np.float32)
    engine = OpenVinoEngine(directory, manifest, threads=1, cache_dir=tmp_path / "cache")
    assert engine.precision == "fp32"
    expected = OnnxRuntimeEngine(directory, manifest).infer(feed)["output"]
    np.testing.assert_allclose(engine.infer(feed)["output"], expected, atol=1e-5)
