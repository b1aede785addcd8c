"""Bounds the sizes of all tensors of a foreign graph, for the largest tile that it will be served with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import onnx
from onnx import GraphProto, helper

from export.errors import GraphRefused
from export.foreign.guard.reading import MAX_GRAPH_DEPTH
from export.foreign.guard.tensors import ITEM_BYTES, MAX_BYTES, graphs_of

_SMALL_VALUES = 4096


class InferredSizes(NamedTuple):
    """Shapes and values of a graph's tensors, as far as they are known.

    largest: name, dimensions and bytes of the largest tensor.
    unknown: names of the tensors whose size depends on more than the inputs' sizes.
    """

    largest: tuple[str, tuple[int, ...], int]
    unknown: tuple[str, ...]


def check_sizes(model: onnx.ModelProto, inputs: Mapping[str, Sequence[int]]) -> InferredSizes:
    """Infer every tensor's size and bound it.

    Args:
        model: a model that `check_policy` accepts.
        inputs: the dimensions of each input, by name.

    Raises:
        GraphRefused: a tensor would have more than 2 GiB, or types and sizes contradict each other.
    """
    try:
        inferred = onnx.shape_inference.infer_shapes(_skeleton(model, inputs), check_type=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise GraphRefused(f"types or sizes in the graph contradict each other: {line[:300]}") from error
    found = {name: (dims, size) for graph in graphs_of(inferred, MAX_GRAPH_DEPTH) for name, dims, size in _known(graph)}
    computed = {
        name for graph in graphs_of(model, MAX_GRAPH_DEPTH) for node in graph.node for name in node.output if name
    }
    name, (dims, size) = max(found.items(), key=lambda entry: entry[1][1], default=("", ((), 0)))
    if size > MAX_BYTES:
        raise GraphRefused(f"tensor {name!r} would have {dims}, {size} bytes; at most {MAX_BYTES} are computed")
    return InferredSizes((name, dims, size), tuple(sorted(computed - set(found))))


def _known(graph: GraphProto) -> Iterator[tuple[str, tuple[int, ...], int]]:
    for value in (*graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        dims = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim)
        if tensor.HasField("shape") and min(dims, default=0) >= 0:
            yield value.name, dims, math.prod(dims) * ITEM_BYTES.get(tensor.elem_type, 16)


def _skeleton(model: onnx.ModelProto, inputs: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """Copy a model with the given input sizes and without its weights, which shape inference does not read."""
    skeleton = onnx.ModelProto(ir_version=max(4, model.ir_version), opset_import=model.opset_import)
    skeleton.graph.name = "graph"
    skeleton.graph.node.extend(model.graph.node)
    skeleton.graph.output.extend(helper.make_empty_tensor_value_info(value.name) for value in model.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    for name, dims in inputs.items():
        skeleton.graph.input.append(helper.make_tensor_value_info(name, types[name], list(dims)))
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= _SMALL_VALUES:
            skeleton.graph.initializer.append(tensor)
        else:
            skeleton.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return skeleton
