"""Sets each layer's type (FP16 or FP32, as in the graph) in a network of TensorRT 8.6, which is weakly typed.

Before the build, such a network reports FP32 for every tensor whose type no cast sets. So the types are derived here
from casts and constants by ONNX's rule that all float operands of an operator have the same type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def pin_types(trt: Any, network: Any) -> int:
    """Set the type of every float layer to the graph's; returns the number of layers that were set.

    Args:
        trt: the TensorRT bindings.
        network: the network parsed from ONNX.
    """
    untyped = _untyped_layers(trt)
    pinned = 0
    for layer, kind in float_layers(trt, network):
        if layer.type in untyped:
            continue
        layer.precision = kind
        for index in range(layer.num_outputs):
            layer.set_output_type(index, kind)
        pinned += 1
    return pinned


def float_layers(trt: Any, network: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (layer, type) for every layer whose outputs are all FP16 or FP32, in the graph's order."""
    floats = (trt.DataType.FLOAT, trt.DataType.HALF)
    kinds: dict[str, Any] = {}
    constants: set[str] = set()
    for index in range(network.num_inputs):
        kinds[network.get_input(index).name] = network.get_input(index).dtype
    for layer in (network.get_layer(index) for index in range(network.num_layers)):
        inputs = [layer.get_input(index) for index in range(layer.num_inputs)]
        names = [tensor.name for tensor in inputs if tensor is not None]
        outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
        kind = outputs[0].dtype
        if layer.type not in _typed_layers(trt) and kind in floats:
            known = sorted((name for name in names if kinds.get(name) in floats), key=lambda name: name in constants)
            kind = kinds[known[0]] if known else kind
        if all(name in constants for name in names):
            constants |= {tensor.name for tensor in outputs}
        kinds |= {tensor.name: kind if tensor.dtype in floats else tensor.dtype for tensor in outputs}
        if all(tensor.dtype in floats for tensor in outputs):
            yield layer, kind


def _typed_layers(trt: Any) -> set[Any]:
    """Return the kinds of layer that state their own output type."""
    return {trt.LayerType.CAST, trt.LayerType.CONSTANT}


def _untyped_layers(trt: Any) -> set[Any]:
    """Return the kinds of layer that only move or hold values: their type is inferred and must not be set."""
    kinds = trt.LayerType
    return {kinds.CONSTANT, kinds.SHAPE, kinds.CAST, kinds.SHUFFLE, kinds.CONCATENATION, kinds.SLICE}
