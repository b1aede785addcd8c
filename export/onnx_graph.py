"""Writes a lowered net as an ONNX file of opset 17 and checks it against the tensor contract.

Written with torch's TorchScript exporter (`dynamo=False`) on purpose. The newer one removes `x + 1e-8` as if it were
`x + 0`, which turns partial convolutions into NaN; at opset 17, which TensorRT 8.6 stops at, it writes 18 and converts
down; and it has no symbol for a half convolution that a CPU can also compute. The older exporter writes a long chain of
constants in front of every reflected border, which is folded here.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor, nn

from engines.manifest import TensorSpec
from export.errors import GraphInvalid
from export.generators.family import Interface

OPSET = 17
_MAX_FOLDED_BYTES = 4096
_ONNX_TYPES = {"float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8, "int32": TensorProto.INT32}
_TORCH_TYPES = {"float32": torch.float32, "uint8": torch.uint8, "int32": torch.int32}


def write_graph(net: nn.Module, interface: Interface, path: Path) -> None:
    """Write `net` (FP32 or FP16) to `path`.

    Raises:
        GraphInvalid: the graph is not valid ONNX of opset 17 or its tensors are not those of the interface.
    """
    specs = (*interface.inputs, interface.output)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns of its deprecation and of every traced constant
        torch.onnx.export(
            net,
            example_inputs(interface, batch=1),
            path,
            dynamo=False,
            opset_version=OPSET,
            input_names=[spec.name for spec in interface.inputs],
            output_names=[interface.output.name],
            dynamic_axes={str(spec.name): _dynamic_axes(spec) for spec in specs},
        )
    model = onnx.load(path)
    fold_constants(model)
    drop_idle_casts(model)
    _declare_types(model, specs)
    onnx.save(model, path)
    check_graph(path, interface)


def example_inputs(interface: Interface, batch: int) -> tuple[Tensor, ...]:
    """Return tensors of ones in the smallest tile size that the service sends."""
    height, width = next(interface.size.tile_sizes())
    sizes = {"batch": batch, "samples": 2, "height": height, "width": width}
    return tuple(
        torch.ones([d if isinstance(d, int) else sizes[d] for d in spec.shape], dtype=_TORCH_TYPES[spec.dtype])
        for spec in interface.inputs
    )


def _dynamic_axes(spec: TensorSpec) -> dict[int, str]:
    return {axis: d for axis, d in enumerate(spec.shape) if isinstance(d, str)}


def _declare_types(model: onnx.ModelProto, specs: Sequence[TensorSpec]) -> None:
    """Replace the shapes that the tracer guessed by those of the contract."""
    by_name = {str(spec.name): spec for spec in specs}
    for value in (*model.graph.input, *model.graph.output):
        spec = by_name.get(value.name)
        if spec is not None:
            value.CopyFrom(helper.make_tensor_value_info(spec.name, value.type.tensor_type.elem_type, list(spec.shape)))


def fold_constants(model: onnx.ModelProto) -> None:
    """Replace every node whose inputs are all small constants by its value, in place."""
    graph = model.graph
    known = {t.name: numpy_helper.to_array(t) for t in graph.initializer if _is_small(t)}
    kept, folded = [], set()
    for node in graph.node:
        if any(name not in known for name in node.input if name) or _has_subgraph(node):
            kept.append(node)
            continue
        values = ReferenceEvaluator(node).run(None, {name: known[name] for name in node.input if name})
        known.update(zip(node.output, map(np.asarray, values), strict=True))
        folded.update(node.output)
    wanted = {name for node in kept for name in node.input} | {value.name for value in graph.output}
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(known[name], name) for name in sorted(folded & wanted))


def drop_idle_casts(model: onnx.ModelProto) -> None:
    """Remove casts to the type that a tensor already has, in place; the FP32 graph has many."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}
    source: dict[str, str] = {}
    kept = []
    for node in model.graph.node:
        node.input[:] = [source.get(name, name) for name in node.input]
        same = node.op_type == "Cast" and types.get(node.input[0]) == node.attribute[0].i
        if same and node.output[0] != model.graph.output[0].name:
            source[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)


def _is_small(tensor: TensorProto) -> bool:
    return int(np.prod(tensor.dims)) * 4 <= _MAX_FOLDED_BYTES


def _has_subgraph(node: onnx.NodeProto) -> bool:
    return any(attribute.type == onnx.AttributeProto.GRAPH for attribute in node.attribute)


def check_graph(path: Path, interface: Interface) -> None:
    """Check the file: valid ONNX, opset 17, standard operators, exactly the contract's tensors.

    Raises:
        GraphInvalid: the file breaks one of these rules; the message says which.
    """
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise GraphInvalid(f"the exporter wrote an invalid graph: {error}") from error
    model = onnx.load(path)
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    if opsets != {"": OPSET}:
        raise GraphInvalid(f"the graph uses opsets {opsets} instead of {OPSET} alone")
    found = {value.name: _type_and_shape(value) for value in (*model.graph.input, *model.graph.output)}
    wanted = {spec.name: (_ONNX_TYPES[spec.dtype], spec.shape) for spec in (*interface.inputs, interface.output)}
    if found != wanted:
        raise GraphInvalid(f"the graph's tensors are {found} instead of {wanted}")


def _type_and_shape(value: Any) -> tuple[int, tuple[int | str, ...]]:
    tensor = value.type.tensor_type
    return tensor.elem_type, tuple(d.dim_param or d.dim_value for d in tensor.shape.dim)
