"""Small graphs that really inpaint, with the inputs and outputs of published files, which the tests do not have.

Each fills a hole with weighted means of known pixels at growing distances, so a wrong range or polarity is noticed as
with a trained net. `carve_layout` has the tensors of LaMa in ONNX at one size, `pipeline_layout` those of
MI-GAN's pipeline, `joint_layout` the one input of bare generators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

_WINDOWS = (5, 15, 45, 91)
FLOAT, UINT8 = TensorProto.FLOAT, TensorProto.UINT8


class GraphMaker:
    """A builder of graphs; `add` adds a node and returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def add(self, operator: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        result = result or f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [result], name=f"/{result}", **attributes))
        return result

    def model(self, inputs: Sequence[Any], outputs: Sequence[Any], opset: int = 17) -> ModelProto:
        graph = helper.make_graph(self.nodes, "main_graph", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def value(name: str, dtype: int, *dims: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, list(dims))


def fill(maker: GraphMaker, image: str, hole: str) -> str:
    """Add nodes that fill the hole (1 = fill) with means of known pixels around it; returns the result's name."""
    known = maker.add("Sub", maker.constant(1.0), hole)
    done = maker.add("Mul", image, known)
    filled, weight = done, known
    for window in _WINDOWS:
        sums, count = _box_sum(maker, done, 3, window), _box_sum(maker, known, 1, window)
        mean = maker.add("Div", sums, maker.add("Add", count, maker.constant(1e-6)))
        reached = maker.add("Min", maker.add("Mul", count, maker.constant(1e6)), maker.constant(1.0))
        missing = maker.add("Mul", maker.add("Sub", maker.constant(1.0), weight), reached)
        filled = maker.add("Add", filled, maker.add("Mul", mean, missing))
        weight = maker.add("Add", weight, missing)
    return filled


def _box_sum(maker: GraphMaker, planes: str, channels: int, window: int) -> str:
    half = window // 2
    for kernel, pads in (((window, 1), [half, 0, half, 0]), ((1, window), [0, half, 0, half])):
        weights = maker.constant(np.full((channels, 1, *kernel), 1 / window))
        planes = maker.add("Conv", planes, weights, group=channels, pads=pads)
    return planes


def carve_layout(side: int | None = 128, rows: int | str = 1, opset: int = 17) -> ModelProto:
    """Return a graph with float picture and mask in 0..1, mask 1 = hole; result 0..255, clipped, composited."""
    maker = GraphMaker()
    filled = fill(maker, "image", "mask")
    white = maker.add("Mul", filled, maker.constant(255.0))
    maker.add("Clip", white, maker.constant(0.0), maker.constant(255.0), result="output")
    size: tuple[int | str, int | str] = ("height", "width") if side is None else (side, side)
    inputs = [value("image", FLOAT, rows, 3, *size), value("mask", FLOAT, rows, 1, *size)]
    return maker.model(inputs, [value("output", FLOAT, rows, 3, *size)], opset)


def pipeline_layout() -> ModelProto:
    """Return a graph with uint8 picture and mask of any size, 255 = known; result uint8, composited, edge blended."""
    maker = GraphMaker()
    image = maker.add("Cast", "image", to=FLOAT)
    known = maker.add("Div", maker.add("Cast", "mask", to=FLOAT), maker.constant(255.0))
    filled = fill(maker, image, maker.add("Sub", maker.constant(1.0), known))
    soft = _box_sum(maker, maker.add("MaxPool", known, kernel_shape=[3, 3], pads=[1] * 4), 1, 5)
    kept = maker.add("Mul", image, maker.add("Mul", soft, known))
    rest = maker.add("Sub", maker.constant(1.0), maker.add("Mul", soft, known))
    mixed = maker.add("Add", kept, maker.add("Mul", filled, rest))
    clipped = maker.add("Clip", mixed, maker.constant(0.0), maker.constant(255.0))
    maker.add("Cast", maker.add("Round", clipped), to=UINT8, result="result")
    inputs = [
        value("image", UINT8, "batch_size", 3, "height", "width"),
        value("mask", UINT8, "batch_size", 1, "height", "width"),
    ]
    return maker.model(inputs, [value("result", UINT8, "batch_size", 3, "h", "w")], 12)


def joint_layout(side: int = 128) -> ModelProto:
    """Return a graph with one input: mask - 0.5 (mask 1 = known), then the picture in -1..1 with 0 in the hole.

    The result is in -1..1 and not composited.
    """
    maker = GraphMaker()
    mask = maker.add("Slice", "input", *(maker.constant(x, np.int64) for x in ([0], [1], [1])))
    image = maker.add("Slice", "input", *(maker.constant(x, np.int64) for x in ([1], [4], [1])))
    filled = fill(maker, image, maker.add("Sub", maker.constant(0.5), mask))
    maker.add("Mul", filled, maker.constant(0.9), result="output")
    inputs = [value("input", FLOAT, "batch", 4, side, side)]
    return maker.model(inputs, [value("output", FLOAT, "batch", 3, side, side)], 12)


def nhwc_layout(side: int = 128) -> ModelProto:
    """Return a graph as `carve_layout`, with channels last."""
    maker = GraphMaker()
    picture, mask = (maker.add("Transpose", name, perm=[0, 3, 1, 2]) for name in ("rgb", "hole_mask"))
    filled = fill(maker, picture, mask)
    maker.add("Transpose", filled, perm=[0, 2, 3, 1], result="out")
    inputs = [value("rgb", FLOAT, 1, side, side, 3), value("hole_mask", FLOAT, 1, side, side, 1)]
    return maker.model(inputs, [value("out", FLOAT, 1, side, side, 3)])
