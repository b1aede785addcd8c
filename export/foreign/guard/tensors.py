"""The constant tensors of a foreign graph: finds them, and checks that each holds as much data as it claims."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from export.errors import GraphRefused

MAX_BYTES = 2**31 - 2**20
"""Most bytes of all constants together, and of any computed tensor; a protobuf file cannot hold more."""
ITEM_BYTES: dict[int, int] = {
    TensorProto.FLOAT: 4,
    TensorProto.FLOAT16: 2,
    TensorProto.DOUBLE: 8,
    TensorProto.UINT8: 1,
    TensorProto.INT8: 1,
    TensorProto.UINT16: 2,
    TensorProto.INT16: 2,
    TensorProto.INT32: 4,
    TensorProto.UINT32: 4,
    TensorProto.INT64: 8,
    TensorProto.UINT64: 8,
    TensorProto.BOOL: 1,
}
_MAX_RANK = 8
_TYPED_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")


def graphs_of(model: onnx.ModelProto, deepest: int) -> Iterator[GraphProto]:
    """Yield the graph and every graph nested in its nodes.

    Raises:
        GraphRefused: graphs are nested more than `deepest` levels deep.
    """
    waiting = [(model.graph, 0)]
    while waiting:
        graph, depth = waiting.pop()
        if depth > deepest:
            raise GraphRefused(f"graphs are nested more than {deepest} deep; no inpainting net needs that")
        yield graph
        for node in graph.node:
            waiting += [(inner, depth + 1) for inner in subgraphs_of(node)]


def subgraphs_of(node: NodeProto) -> list[GraphProto]:
    """Return the graphs that a node holds as attributes."""
    return [attribute.g for attribute in node.attribute if attribute.type == AttributeProto.GRAPH]


def tensors_of(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield the initialisers of one graph and the tensors in its nodes' attributes; not those of nested graphs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors


def claimed_bytes(tensor: TensorProto) -> int:
    """Return the size in bytes that a tensor's type and dimensions claim.

    Raises:
        GraphRefused: the type is not a plain number, the dimensions are invalid, or the size exceeds `MAX_BYTES`.
    """
    item = ITEM_BYTES.get(tensor.data_type)
    if item is None:
        kind = TensorProto.DataType.Name(tensor.data_type) if tensor.data_type in _type_numbers() else tensor.data_type
        raise GraphRefused(f"constant {tensor.name!r} is of type {kind}; only plain numbers are read")
    if len(tensor.dims) > _MAX_RANK or any(size < 0 for size in tensor.dims):
        raise GraphRefused(f"constant {tensor.name!r} claims dimensions {list(tensor.dims)[:12]}")
    size: int = math.prod(tensor.dims) * item
    if size > MAX_BYTES:
        raise GraphRefused(f"constant {tensor.name!r} claims {size} bytes; at most {MAX_BYTES} are read")
    return size


def check_inline_tensor(tensor: TensorProto) -> None:
    """Check that a tensor inside the file holds exactly as many values as it claims.

    Raises:
        GraphRefused: it holds more or fewer, is stored in segments, or `claimed_bytes` refuses it.
    """
    claimed = claimed_bytes(tensor)
    if tensor.HasField("segment"):
        raise GraphRefused(f"constant {tensor.name!r} is stored in segments, which nothing writes")
    typed = sum(len(getattr(tensor, field)) for field in _TYPED_FIELDS)
    held = len(tensor.raw_data) if tensor.HasField("raw_data") else typed * ITEM_BYTES[tensor.data_type]
    if held != claimed or (tensor.HasField("raw_data") and typed):
        raise GraphRefused(f"constant {tensor.name!r} claims {claimed} bytes and holds {held}; copy the file again")


def _type_numbers() -> set[int]:
    return set(TensorProto.DataType.values())
