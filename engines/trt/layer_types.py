"""The graph's FP16 and FP32 in a weakly typed network: TensorRT 8.6 is told the type of every layer.

Until it is built, such a network calls every tensor FP32 that no cast has typed, so the types are worked out here from
the casts and the constants on, as ONNX has them: all float operands of an operator are of one type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def pin_types(trt: Any, network: Any) -> int:
    """Make a network compute and keep each tensor in the graph's type; returns the layers that were pinned.

    Args:
        trt: the bindings.
        network: as parsed from ONNX.
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
    """Every layer whose outputs are all FP16 or FP32, with that type; in the graph's order."""
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
    """Layers that say themselves what they give."""
    return {trt.LayerType.CAST, trt.LayerType.CONSTANT}


def _untyped_layers(trt: Any) -> set[Any]:
    """Layers that move or hold values and whose type follows from their neighbours; pinning these is an error."""
    kinds = trt.LayerType
    return {kinds.CONSTANT, kinds.SHAPE, kinds.CAST, kinds.SHUFFLE, kinds.CONCATENATION, kinds.SLICE}
