"""A graph's types are derived again in networks that report FP32 everywhere, tested on real TensorRT-RTX networks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engines.errors import EngineUnavailable
from engines.manifest import read_manifest
from engines.trt.build import parse_network
from engines.trt.layer_types import float_layers, pin_types
from engines.trt.library import MODULES, TensorRt, load_tensorrt
from tests.engines.conftest import conv_graph, shipped


@pytest.fixture(scope="module")
def library() -> TensorRt:
    try:
        return load_tensorrt(MODULES[2:])
    except EngineUnavailable as error:
        pytest.skip(str(error))


class Untyped:
    """A layer as TensorRT 8.6 reports it: FP32 unless a cast or a constant sets another type."""

    def __init__(self, layer: Any, trt: Any) -> None:
        self.type, self.name = layer.type, layer.name
        self.num_inputs, self.num_outputs = layer.num_inputs, layer.num_outputs
        self.precision: Any = None
        self.output_types: dict[int, Any] = {}
        self._layer, self._trt = layer, trt

    def get_input(self, index: int) -> Any:
        tensor = self._layer.get_input(index)
        return None if tensor is None else SimpleNamespace(name=tensor.name)

    def get_output(self, index: int) -> Any:
        tensor, kinds = self._layer.get_output(index), self._trt.LayerType
        dtype = tensor.dtype
        if dtype == self._trt.DataType.HALF and self.type not in (kinds.CAST, kinds.CONSTANT):
            dtype = self._trt.DataType.FLOAT
        return SimpleNamespace(name=tensor.name, dtype=dtype)

    def set_output_type(self, index: int, dtype: Any) -> None:
        self.output_types[index] = dtype

    @property
    def right(self) -> Any:
        return self._layer.get_output(0).dtype


class UntypedNetwork:
    def __init__(self, network: Any, trt: Any) -> None:
        self._network = network
        self.num_inputs, self.num_layers = network.num_inputs, network.num_layers
        self.layers = [Untyped(network.get_layer(index), trt) for index in range(network.num_layers)]

    def get_input(self, index: int) -> Any:
        return self._network.get_input(index)

    def get_layer(self, index: int) -> Untyped:
        return self.layers[index]


def as_8_6(library: TensorRt, directory: Path) -> tuple[UntypedNetwork, Any]:
    """Return a model's network as TensorRT 8.6 reports it, and the objects that must stay alive with it."""
    builder = library.module.Builder(library.logger)
    network = parse_network(library, builder, directory / "model.onnx", read_manifest(directory))
    return UntypedNetwork(network, library.module), (builder, network)


@pytest.mark.parametrize("name", ["photos", "facades"])
def test_every_layer_of_a_shipped_model_gets_the_type_that_the_graph_gives_it(library, name):
    directory = shipped(name)
    network, _alive = as_8_6(library, directory)
    found = list(float_layers(library.module, network))
    assert len(found) > 50
    assert [(layer.name, kind) for layer, kind in found] == [(layer.name, layer.right) for layer, _ in found]


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
def test_layers_are_pinned_but_those_that_only_move_values(library, publish, half):
    network, _alive = as_8_6(library, publish(onnx_model=conv_graph(half=half)))
    kinds, types = library.module.LayerType, library.module.DataType
    assert pin_types(library.module, network) == 2
    pinned = {layer.type: layer for layer in network.layers if layer.precision is not None}
    assert set(pinned) == {kinds.CONVOLUTION, kinds.ACTIVATION}
    convolution, sigmoid = pinned[kinds.CONVOLUTION], pinned[kinds.ACTIVATION]
    assert (convolution.precision, convolution.output_types) == (
        (types.HALF, {0: types.HALF}) if half else (types.FLOAT, {0: types.FLOAT})
    )
    assert (sigmoid.precision, sigmoid.output_types) == (types.FLOAT, {0: types.FLOAT})


def test_integers_are_left_alone():
    trt: Any = SimpleNamespace(
        DataType=SimpleNamespace(FLOAT=0, HALF=1),
        LayerType=SimpleNamespace(CONSTANT=0, SHAPE=1, CAST=2, SHUFFLE=3, CONCATENATION=4, SLICE=5),
    )
    compared: Any = SimpleNamespace(
        type=9,
        num_inputs=1,
        num_outputs=1,
        get_input=lambda _: SimpleNamespace(name="x"),
        get_output=lambda _: SimpleNamespace(name="y", dtype=7),
    )
    network = SimpleNamespace(
        num_inputs=1, num_layers=1, get_input=lambda _: SimpleNamespace(name="x", dtype=0), get_layer=lambda _: compared
    )
    assert pin_types(trt, network) == 0
