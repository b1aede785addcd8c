"""The rules that a foreign graph must obey before any library but protobuf reads it.

They bound what the graph can make a runtime do: operators, nesting, number of nodes and loops, constants, and sizes
that the graph itself states. What follows from the sizes of the inputs is bounded in sizes.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, numpy_helper

from export.errors import GraphRefused
from export.foreign.guard.operators import (
    MAX_IR_VERSION,
    MAX_OPSET,
    MIN_OPSET,
    OPERATORS,
    SIZE_ATTRIBUTES,
    SIZE_OPERANDS,
)
from export.foreign.guard.reading import MAX_GRAPH_DEPTH
from export.foreign.guard.tensors import MAX_BYTES, check_inline_tensor, claimed_bytes, graphs_of, tensors_of

_MAX_NODES = 20_000
_MAX_ATTRIBUTES = 64
_MAX_PORTS = 16
_MAX_NAME_LENGTH = 300
_MAX_ITERATIONS = 4096
_MAX_SIDE = 2**16
_MAX_VALUES = 2**29
_OWN_DOMAINS = ("", "ai.onnx")
_DATA_ATTRIBUTES = (AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.STRING, AttributeProto.TENSOR,
                    AttributeProto.GRAPH, AttributeProto.FLOATS, AttributeProto.INTS)  # fmt: skip


def check_policy(model: onnx.ModelProto) -> None:
    """Check a model that holds all its data, as `read_model` returns it.

    Raises:
        GraphRefused: it breaks a rule; the message names the rule and the node.
    """
    _check_header(model)
    graphs = list(graphs_of(model, MAX_GRAPH_DEPTH))
    if (nodes := sum(len(graph.node) for graph in graphs)) > _MAX_NODES:
        raise GraphRefused(f"{nodes} nodes; at most {_MAX_NODES} are accepted")
    constants = sum(claimed_bytes(tensor) for graph in graphs for tensor in tensors_of(graph))
    if constants > MAX_BYTES:
        raise GraphRefused(f"the constants claim {constants} bytes together; at most {MAX_BYTES} are read")
    for graph in graphs:
        _check_constants(graph)
    known = _named_constants(graphs)
    for graph in graphs:
        for node in graph.node:
            _check_node(node, known)


def _check_header(model: onnx.ModelProto) -> None:
    if model.functions or model.training_info:
        raise GraphRefused("the file has functions or training parts; inline functions (onnx.inliner) and save again")
    opsets = [(entry.domain, entry.version) for entry in model.opset_import]
    foreign = sorted({domain for domain, _ in opsets if domain not in _OWN_DOMAINS})
    if foreign:
        raise GraphRefused(
            f"the graph needs operators of {', '.join(map(repr, foreign))}; only those of ai.onnx are run"
        )
    if len(opsets) != 1 or not MIN_OPSET <= opsets[0][1] <= MAX_OPSET:
        found = ", ".join(str(version) for _, version in opsets) or "none"
        raise GraphRefused(f"opset {found} is not one of {MIN_OPSET} to {MAX_OPSET}; export the net again")
    if model.ir_version > MAX_IR_VERSION:
        raise GraphRefused(f"format version {model.ir_version} is newer than {MAX_IR_VERSION}; export the net again")
    if max(len(model.graph.input) - len(model.graph.initializer), len(model.graph.output)) > _MAX_PORTS:
        raise GraphRefused(f"more than {_MAX_PORTS} inputs or outputs; an inpainting net has three")


def _check_constants(graph: GraphProto) -> None:
    if graph.sparse_initializer:
        raise GraphRefused("sparse constants are not accepted; save the net with dense ones")
    names = [tensor.name for tensor in graph.initializer]
    if len(set(names)) != len(names):
        raise GraphRefused("two constants have one name; the file is damaged")
    for tensor in tensors_of(graph):
        check_inline_tensor(tensor)


def _named_constants(graphs: Sequence[GraphProto]) -> dict[str, onnx.TensorProto]:
    """Return the constants by name, without names that are defined twice: which one is meant depends on the runtime."""
    defined = Counter(name for graph in graphs for name in _defined_names(graph))
    constants = {tensor.name: tensor for graph in graphs for tensor in graph.initializer}
    for node in (node for graph in graphs for node in graph.node if node.op_type == "Constant" and node.output):
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                constants[node.output[0]] = attribute.t
    return {name: tensor for name, tensor in constants.items() if defined[name] == 1}


def _defined_names(graph: GraphProto) -> Iterator[str]:
    yield from (tensor.name for tensor in graph.initializer)
    yield from (value.name for value in graph.input)
    yield from (name for node in graph.node for name in node.output)


def _check_node(node: NodeProto, known: Mapping[str, onnx.TensorProto]) -> None:
    if node.domain not in _OWN_DOMAINS or node.op_type not in OPERATORS:
        called = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        more = "; a quantised graph is not accepted, give the net in FP32 or FP16" if "uantize" in node.op_type else ""
        raise GraphRefused(f"node {node.name!r} is a {called}, which is not among the operators that are run{more}")
    if any(len(name) > _MAX_NAME_LENGTH for name in (node.name, *node.input, *node.output)):
        raise GraphRefused(f"a {node.op_type} has names of more than {_MAX_NAME_LENGTH} characters")
    _check_attributes(node)
    if node.op_type == "Loop":
        _check_iterations(node, known)
    if node.op_type == "Range":
        _check_range(node, known)
    for index in SIZE_OPERANDS.get(node.op_type, ()):
        if index < len(node.input) and (tensor := known.get(node.input[index])) is not None:
            _check_size_operand(node, tensor)


def _check_attributes(node: NodeProto) -> None:
    if len(node.attribute) > _MAX_ATTRIBUTES:
        raise GraphRefused(f"node {node.name!r} has {len(node.attribute)} attributes")
    for attribute in node.attribute:
        if attribute.ref_attr_name or attribute.type not in _DATA_ATTRIBUTES:
            raise GraphRefused(f"attribute {attribute.name!r} of node {node.name!r} is of a kind that is not accepted")
        if attribute.name in SIZE_ATTRIBUTES:
            _require_small(node, [attribute.i, *attribute.ints])
        if node.op_type == "Constant" and attribute.type != AttributeProto.TENSOR and len(attribute.ints) > 1024:
            raise GraphRefused(f"node {node.name!r} spells out {len(attribute.ints)} numbers; constants are tensors")


def _check_size_operand(node: NodeProto, tensor: onnx.TensorProto) -> None:
    values = numpy_helper.to_array(tensor).ravel()
    _require_small(node, [float(value) for value in values[:64]])
    if values.size > 64:
        raise GraphRefused(f"node {node.name!r} ({node.op_type}) is given {values.size} sizes")


def _check_range(node: NodeProto, known: Mapping[str, onnx.TensorProto]) -> None:
    tensors = [known.get(name) for name in node.input]
    start, limit, step = (
        numpy_helper.to_array(tensor).ravel() if tensor is not None else None
        for tensor in [*tensors, None, None, None][:3]
    )
    if step is None or step.size != 1:
        return
    far = max((abs(float(end[0])) for end in (start, limit) if end is not None and end.size), default=0.0)
    if not far / max(abs(float(step[0])), 1e-12) <= _MAX_SIDE**2 / 64:
        raise GraphRefused(
            f"node {node.name!r} (Range) counts to {far:g} in steps of {float(step[0]):g}, which is too far"
        )


def _require_small(node: NodeProto, values: list[float]) -> None:
    product = math.prod(abs(value) for value in values if value) if node.op_type != "Pad" else 0
    # `not … <=` so that NaN is refused, too
    if any(not abs(value) <= _MAX_SIDE for value in values) or not product <= _MAX_VALUES:
        raise GraphRefused(
            f"node {node.name!r} ({node.op_type}) makes a tensor of sizes {values[:8]}, which is too large"
        )


def _check_iterations(node: NodeProto, known: Mapping[str, onnx.TensorProto]) -> None:
    tensor = known.get(node.input[0]) if node.input else None
    turns = numpy_helper.to_array(tensor).ravel().tolist() if tensor is not None else []
    if len(turns) != 1 or not 0 <= turns[0] <= _MAX_ITERATIONS:
        raise GraphRefused(
            f"node {node.name!r} loops without a constant bound of at most {_MAX_ITERATIONS} iterations; unroll "
            "it in the export"
        )
