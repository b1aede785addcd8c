"""Rewrites an FP32 graph so that chosen convolutions compute in INT8: QuantizeLinear and DequantizeLinear, opset 17.

Weights are symmetric with a scale for each output channel, inputs symmetric with one scale: what TensorRT, ONNX Runtime
and OpenVINO all read. The channels of an input are first divided by factors that equalise their ranges, and the weights
multiplied by them, which changes nothing in exact arithmetic. Source: Xiao et al., "SmoothQuant", 2022; here for
convolutions. Where the input is the activation of a convolution that feeds nothing else, that convolution's
weights are divided; elsewhere a multiplication is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Floats = NDArray[np.float32]
INT8_MAX = 127
"""Largest INT8 value that is used; -128 is not, so that the scale is symmetric."""
_MIN_SCALE = 1e-12
_HOMOGENEOUS = frozenset(("LeakyRelu", "Relu"))
"""Activations with act(a·x) = a·act(x) for positive a."""
_BY_ELEMENT = _HOMOGENEOUS | {"Add", "Sub", "Mul", "Div", "Clip", "Cast"}


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution that can compute in INT8.

    name: its node's. input: name of the tensor that it reads. weight: name of its weight, of shape O×I×K×K. stride:
    input positions per output position.
    """

    name: str
    input: str
    weight: str
    shape: tuple[int, ...]
    stride: int


@dataclass(frozen=True, slots=True)
class InputScale:
    """The scale of a convolution's input.

    limit: largest magnitude after the division by `factors`; larger ones saturate.
    factors: one positive number for each input channel.
    positions: number of positions of the input in all calibration pictures together.
    """

    limit: float
    factors: Floats
    positions: int = 1


def convolutions(model: onnx.ModelProto) -> tuple[Convolution, ...]:
    """Return the convolutions with constant FP32 weights and without groups, in the graph's order.

    Those that read concatenated tensors are left out: OpenVINO 2026.4 computes them wrongly in INT8, at 10 dB where
    ONNX Runtime has 50 (docs/measurements/int8.md).
    """
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    producers = {output: node for node in model.graph.node for output in node.output}
    found = []
    for node in model.graph.node:
        if node.op_type != "Conv" or node.input[1] not in weights or _reads_concatenation(node.input[0], producers):
            continue
        weight, settings = weights[node.input[1]], _attributes(node)
        if weight.data_type == onnx.TensorProto.FLOAT and settings.get("group", 1) == 1:
            stride = int(np.prod(settings.get("strides", (1,))))
            found.append(Convolution(node.name, node.input[0], node.input[1], tuple(weight.dims), stride))
    return tuple(found)


def to_int8(model: onnx.ModelProto, scales: Mapping[str, InputScale]) -> onnx.ModelProto:
    """Return a copy of the graph in which the convolutions named by `scales` compute in INT8."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    rewriter = _Rewriter(changed)
    rewriter.keep_complements()
    for layer in convolutions(changed):
        if layer.name in scales:
            rewriter.divide(layer, scales[layer.name].factors)
    for layer in convolutions(changed):
        if layer.name in scales:
            rewriter.quantise(layer, scales[layer.name])
    rewriter.finish()
    return changed


class _Rewriter:
    """Changes a graph in place; `finish` puts the new nodes in front of their readers."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        self._nodes = {node.name: node for node in model.graph.node}
        self._producers = {output: node for node in model.graph.node for output in node.output}
        self._weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self._before: dict[str, list[onnx.NodeProto]] = {}
        self._readers: dict[str, int] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers[name] = self._readers.get(name, 0) + 1

    def keep_complements(self) -> None:
        """Write 1 - mask as |mask - 1|, which is the same for masks from 0 to 1.

        Beside INT8 layers OpenVINO 2026.4 mistakes a difference from a constant for a dequantisation and moves it after
        the means and factors that follow. FillNet's shares of known pixels are then 1 - x with x within 1/1024 of 1,
        which bf16 cannot tell apart (docs/measurements/int8.md). It moves nothing past an absolute value.
        """
        for node in self._graph.node:
            if node.op_type != "Sub" or node.input[1] != "mask" or not self._is_one(node.input[0]):
                continue
            self._insert(node.name, "Sub", ["mask", node.input[0]], f"{node.name}/negative")
            node.op_type = "Abs"
            del node.input[:]
            node.input.append(f"{node.name}/negative")

    def divide(self, layer: Convolution, factors: Floats) -> None:
        """Divide the layer's input channels by the factors and multiply its weights by them."""
        if (factors == 1).all():
            return
        node = self._nodes[layer.name]
        self._replace(layer.weight, self._array(layer.weight) * factors[None, :, None, None])
        before = self._only_convolution_before(layer.input)
        if before is not None:
            for name in before.input[1:]:
                array = self._array(name)
                self._replace(name, array / factors.reshape(-1, *[1] * (array.ndim - 1)))
            return
        inverse = self._constant(f"{layer.name}/divided_by", (1 / factors)[None, :, None, None])
        self._insert(layer.name, "Mul", [node.input[0], inverse], f"{layer.name}/divided")
        node.input[0] = f"{layer.name}/divided"

    def quantise(self, layer: Convolution, scale: InputScale) -> None:
        """Replace the layer's input and weights by INT8 values with scales."""
        node = self._nodes[layer.name]
        step = self._constant(f"{layer.name}/input_scale", np.float32(max(scale.limit / INT8_MAX, _MIN_SCALE)))
        zero = self._constant(f"{layer.name}/zero", np.int8(0))
        name = f"{layer.name}/input"
        self._insert(layer.name, "QuantizeLinear", [node.input[0], step, zero], f"{name}_int8")
        self._insert(layer.name, "DequantizeLinear", [f"{name}_int8", step, zero], name)
        node.input[0] = name
        values, steps = quantised_weights(self._array(layer.weight))
        inputs = [
            self._constant(f"{layer.name}/weight_int8", values),
            self._constant(f"{layer.name}/weight_scale", steps),
            self._constant(f"{layer.name}/weight_zero", np.zeros(len(steps), np.int8)),
        ]
        self._insert(layer.name, "DequantizeLinear", inputs, f"{layer.name}/weight", axis=0)
        node.input[1] = f"{layer.name}/weight"

    def finish(self) -> None:
        """Write the nodes in order and drop weights that nothing reads any more."""
        ordered = [each for node in self._graph.node for each in (*self._before.get(node.name, ()), node)]
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
        read = {name for node in copies for name in node.input} | {value.name for value in self._graph.output}
        del self._graph.node[:]
        self._graph.node.extend(copies)
        kept = [tensor for name, tensor in self._weights.items() if name in read]
        del self._graph.initializer[:]
        self._graph.initializer.extend(kept)

    def _only_convolution_before(self, tensor: str) -> onnx.NodeProto | None:
        """Return the convolution whose activation `tensor` is, if neither has another reader."""
        activation = self._producers.get(tensor)
        if activation is None or activation.op_type not in _HOMOGENEOUS or self._readers[tensor] > 1:
            return None
        before = self._producers.get(activation.input[0])
        alone = before is not None and before.op_type == "Conv" and self._readers[activation.input[0]] == 1
        own = before is not None and all(
            name in self._weights and self._readers[name] == 1 for name in before.input[1:]
        )
        return before if alone and own else None

    def _insert(self, reader: str, kind: str, inputs: list[str], output: str, **settings: Any) -> None:
        node = helper.make_node(kind, inputs, [output], name=output, **settings)
        self._before.setdefault(reader, []).append(node)

    def _is_one(self, name: str) -> bool:
        if name in self._weights:
            return bool((self._array(name) == 1).all())
        maker = self._producers.get(name)
        value = None if maker is None or maker.op_type != "Constant" else _attributes(maker).get("value")
        return value is not None and bool((numpy_helper.to_array(value) == 1).all())

    def _array(self, name: str) -> Floats:
        values: Floats = numpy_helper.to_array(self._weights[name])
        return values

    def _replace(self, name: str, values: Any) -> None:
        self._weights[name] = numpy_helper.from_array(np.asarray(values, np.float32), name)

    def _constant(self, name: str, values: Any) -> str:
        self._weights[name] = numpy_helper.from_array(np.asarray(values), name)
        return name


def quantised_weights(weight: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Return a weight O×I×K×K as INT8 values and the scale of each output channel."""
    largest = np.abs(weight).reshape(len(weight), -1).max(1)
    steps = np.maximum(largest / INT8_MAX, _MIN_SCALE).astype(np.float32)
    values = np.rint(weight / steps.reshape(-1, *[1] * (weight.ndim - 1))).clip(-INT8_MAX, INT8_MAX).astype(np.int8)
    return values, steps


def _reads_concatenation(tensor: str, producers: Mapping[str, onnx.NodeProto]) -> bool:
    """Return whether the tensor is a concatenation, or is computed from one element by element."""
    node = producers.get(tensor)
    while node is not None and node.op_type in _BY_ELEMENT:
        node = producers.get(node.input[0])
    return node is not None and node.op_type == "Concat"


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
