"""Adds nodes before and after a foreign graph, so that its tensors are those of the contract in engines/manifest.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, compose, helper, numpy_helper

from engines.manifest import TensorSpec
from export.errors import GraphRefused
from export.foreign.ports import Ports
from export.foreign.wiring import IMAGE_SCALES, MASK_SCALES, Wiring, parts_of

_NET, _OWN = "net/", "retouch/"
_NCHW_TO_NHWC, _NHWC_TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
_NUMBERS = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "float64": TensorProto.DOUBLE,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


def tensor_specs(ports: Ports) -> tuple[tuple[TensorSpec, TensorSpec], TensorSpec]:
    """Return the inputs and the output of the wrapped graph."""
    side: Sequence[int | str] = ports.side or ("height", "width")
    rows: int | str = ports.max_rows or "batch"
    image, mask, output = (
        TensorSpec.model_validate({"name": name, "dtype": "float32", "shape": (rows, channels, *side)})
        for name, channels in (("image", 3), ("mask", 1), ("output", 3))
    )
    return (image, mask), output


def wrapped(model: ModelProto, wiring: Wiring) -> ModelProto:
    """Return a model that computes the same on the contract's tensors, without unneeded nodes and outputs.

    Raises:
        GraphRefused: the names in the graph contradict each other.
    """
    try:
        inner = compose.add_prefix_graph(_bare_graph(model, wiring), _NET)
    except (KeyError, ValueError, RuntimeError) as error:
        raise GraphRefused(f"the names in the graph contradict each other ({type(error).__name__})") from error
    nodes = _Nodes()
    _wire_inputs(nodes, wiring)
    after = _Nodes("output/")
    _wire_output(after, wiring)
    inputs, output = tensor_specs(wiring.ports)
    graph = helper.make_graph(
        [*nodes.made, *inner.node, *after.made],
        "wrapped",
        [_value_info(spec) for spec in inputs],
        [_value_info(output)],
        [*nodes.constants, *inner.initializer, *after.constants],
    )
    opset = helper.make_opsetid("", model.opset_import[0].version)
    return helper.make_model(graph, opset_imports=[opset], ir_version=max(6, model.ir_version), producer_name="retouch")


def _bare_graph(model: ModelProto, wiring: Wiring) -> onnx.GraphProto:
    """Copy the nodes and constants that the result needs, without notes, declared sizes and other outputs."""
    graph = onnx.GraphProto(name="net")
    graph.node.extend(_needed_nodes(model.graph.node, {wiring.ports.output}))
    for node in graph.node:
        node.ClearField("doc_string")
    used = {name for node in graph.node for name in (*node.input, *_outer_names(node))} | {wiring.ports.output}
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in used)
    names = [port.name for port in wiring.ports.inputs]
    graph.input.extend(value for value in model.graph.input if value.name in names)
    graph.output.extend(value for value in model.graph.output if value.name == wiring.ports.output)
    return graph


def _needed_nodes(nodes: Iterable[NodeProto], wanted: set[str]) -> list[NodeProto]:
    kept = []
    for node in reversed(list(nodes)):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
            wanted.update(_outer_names(node))
    return kept[::-1]


def _outer_names(node: NodeProto) -> set[str]:
    """Return the names that graphs nested in a node use, their own ones included."""
    names: set[str] = set()
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            names.update(value.name for value in attribute.g.output)
            for inner in attribute.g.node:
                names.update(inner.input)
                names |= _outer_names(inner)
    return names


class _Nodes:
    """Nodes and constants in the order of computation; each method returns the name of its result."""

    def __init__(self, where: str = "input/") -> None:
        self.made: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._prefix = _OWN + where

    def constant(self, values: float | Sequence[int]) -> str:
        array = np.asarray(values, np.float32 if isinstance(values, float) else np.int64)
        name = f"{self._prefix}constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        result = result or f"{self._prefix}{operator}{len(self.made)}"
        self.made.append(helper.make_node(operator, inputs, [result], name=f"{result}/node", **attributes))
        return result

    def scaled(self, value: str, factor: float, term: float) -> str:
        value = value if factor == 1 else self.add("Mul", value, self.constant(float(factor)))
        return value if term == 0 else self.add("Add", value, self.constant(float(term)))


def _wire_inputs(nodes: _Nodes, wiring: Wiring) -> None:
    picture, known = "image", nodes.add("Sub", nodes.constant(1.0), "mask")
    if wiring.bgr:
        picture = nodes.add("Gather", picture, nodes.constant([2, 1, 0]), axis=1)
    picture = nodes.scaled(picture, *IMAGE_SCALES[wiring.image_range])
    if wiring.hole_value is not None:
        under = nodes.add("Mul", "mask", nodes.constant(float(wiring.hole_value)))
        picture = nodes.add("Add", nodes.add("Mul", picture, known), under)
    marks = nodes.scaled("mask" if wiring.mask_means == "hole" else known, *MASK_SCALES[wiring.mask_range])
    for port in wiring.ports.inputs:
        pieces = [
            name for part in parts_of(wiring, port) for name in [marks if part.is_mask else picture] * part.copies
        ]
        value = pieces[0] if len(pieces) == 1 else nodes.add("Concat", *pieces, axis=1)
        if port.layout == "nhwc":
            value = nodes.add("Transpose", value, perm=_NCHW_TO_NHWC)
        if "int" in port.dtype:
            value = nodes.add("Round", value)
        nodes.add("Cast", value, to=_NUMBERS[port.dtype], result=_NET + port.name)


def _wire_output(nodes: _Nodes, wiring: Wiring) -> None:
    value = nodes.add("Cast", _NET + wiring.ports.output, to=TensorProto.FLOAT)
    if wiring.ports.layout == "nhwc":
        value = nodes.add("Transpose", value, perm=_NHWC_TO_NCHW)
    if wiring.bgr:
        value = nodes.add("Gather", value, nodes.constant([2, 1, 0]), axis=1)
    factor, term = IMAGE_SCALES[wiring.output_range]
    nodes.add("Identity", nodes.scaled(value, 1 / factor, -term / factor), result="output")


def _value_info(spec: TensorSpec) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(spec.name, TensorProto.FLOAT, list(spec.shape))
