from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engines.trt.build import parse_network
from export.generators.fillnet.generator import FillNet
from export.generators.fillnet.options import FillNetOptions
from export.int8.graph import INT8_MAX, InputScale, convolutions, quantised_weights, to_int8
from export.onnx_graph import check_graph, write_graph
from export.parity import onnx_backend
from tests.export.conftest import manifest_for

FAMILY = FillNet()
TINY = FillNetOptions(widths="8,6,4", encoder="1,0,1", decoder="0,2,1")
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def graph(tmp_path_factory, make_net):
    path = tmp_path_factory.mktemp("graph") / "fp32.onnx"
    write_graph(FAMILY.lower(make_net(FAMILY, TINY), TINY), FAMILY.interface(TINY), path)
    return path


@pytest.fixture(scope="module")
def feed():
    image = RNG.random((1, 3, 64, 32), np.float32)
    return {"image": image, "mask": (RNG.random((1, 1, 64, 32)) < 0.4).astype(np.float32)}


def scales_of(model, limit=20.0, uneven=False):
    rng = np.random.default_rng(1)
    return {
        layer.name: InputScale(
            limit, (0.5 + rng.random(layer.shape[1]) if uneven else np.ones(layer.shape[1])).astype("f4")
        )
        for layer in convolutions(model)
    }


def run(model, path, feed):
    onnx.save(model, path)
    return onnx_backend(path)(feed)


def test_every_layer_gets_int8_weights_and_input_and_the_graph_keeps_its_contract(graph, tmp_path):
    model = onnx.load(graph)
    changed = to_int8(model, scales_of(model))
    onnx.save(changed, tmp_path / "int8.onnx")
    check_graph(tmp_path / "int8.onnx", FAMILY.interface(TINY))
    made = {output: node.op_type for node in changed.graph.node for output in node.output}
    nodes = [node for node in changed.graph.node if node.op_type == "Conv"]
    quantised = [node for node in nodes if node.name != "/net/stem/Conv"]  # the stem reads a concatenation
    assert len(quantised) == len(convolutions(model)) > 10
    assert all(made[name] == "DequantizeLinear" for node in quantised for name in node.input[:2])
    biggest = {tensor.name: tensor.data_type for tensor in changed.graph.initializer if len(tensor.dims) == 4}
    assert {kind for name, kind in biggest.items() if name.endswith("weight_int8")} == {TensorProto.INT8}
    assert [name for name in biggest if name.startswith("net.")] == ["net.stem.weight"]


def test_layers_that_are_not_named_stay_as_they_are(graph, tmp_path, feed):
    model = onnx.load(graph)
    assert np.array_equal(run(to_int8(model, {}), tmp_path / "same.onnx", feed), onnx_backend(graph)(feed))
    first = convolutions(model)[0].name
    kinds = [node.op_type for node in to_int8(model, {first: scales_of(model)[first]}).graph.node]
    assert kinds.count("QuantizeLinear") == 1


def test_known_pixels_are_an_absolute_value(graph):
    nodes = to_int8(onnx.load(graph), {}).graph.node
    made = {output: node for node in nodes for output in node.output}
    read_mask = [node for node in nodes if "mask" in node.input and node.op_type == "Sub"]
    assert read_mask
    assert all(node.input[0] == "mask" for node in read_mask)
    readers = [node for node in nodes for name in node.input if name in made and made[name] in read_mask]
    assert {node.op_type for node in readers} == {"Abs"}


@pytest.mark.parametrize(("number", "kind"), [(1.0, "Abs"), (0.5, "Sub")])
def test_only_a_difference_from_one_is_the_share_of_known_pixels(number, kind):
    weight = numpy_helper.from_array(np.float32(number), "number")
    nodes = [helper.make_node("Sub", ["number", "mask"], ["known"], name="known")]
    changed = to_int8(helper.make_model(helper.make_graph(nodes, "g", [], [], [weight])), {})
    assert changed.graph.node[-1].op_type == kind


def test_fills_stay_close_and_finer_scales_bring_them_closer(graph, tmp_path, feed, psnr):
    model, wanted = onnx.load(graph), onnx_backend(graph)(feed)
    fine = psnr(run(to_int8(model, scales_of(model, 8.0)), tmp_path / "fine.onnx", feed), wanted)
    rough = psnr(run(to_int8(model, scales_of(model, 200.0)), tmp_path / "rough.onnx", feed), wanted)
    assert fine > 30
    assert rough < fine - 10


def test_uneven_factors_cancel_out(graph, tmp_path, feed, psnr):
    model, wanted = onnx.load(graph), onnx_backend(graph)(feed)
    changed = to_int8(model, scales_of(model, 16.0, uneven=True))
    assert psnr(run(changed, tmp_path / "uneven.onnx", feed), wanted) > 26
    divided = [node for node in changed.graph.node if node.output[0].endswith("/divided")]
    second = [layer for layer in convolutions(model) if "/second/" in layer.name]
    assert len(divided) == len(convolutions(model)) - len(second) > 0  # the others are folded into the one before


def test_weights_use_the_whole_range_of_each_channel():
    weight = np.stack([np.full((2, 3, 3), 0.5), np.full((2, 3, 3), -4.0)]).astype(np.float32)
    values, steps = quantised_weights(weight)
    assert np.abs(values).reshape(2, -1).max(1).tolist() == [INT8_MAX, INT8_MAX]
    assert np.allclose(values * steps[:, None, None, None], weight)


def test_grouped_convolutions_and_computed_weights_are_left_alone():
    weight = numpy_helper.from_array(np.ones((4, 1, 3, 3), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="grouped", group=4)
    graph = helper.make_graph([node], "g", [], [], [weight])
    assert convolutions(helper.make_model(graph)) == ()
    node = helper.make_node("Conv", ["x", "elsewhere"], ["y"], name="computed")
    assert convolutions(helper.make_model(helper.make_graph([node], "g", [], []))) == ()


@pytest.mark.parametrize("between", [(), ("Mul", "LeakyRelu")], ids=["directly", "by element"])
def test_convolutions_of_joined_tensors_are_left_alone(between):
    weight = numpy_helper.from_array(np.ones((4, 2, 3, 3), np.float32), "w")
    nodes, last = [helper.make_node("Concat", ["x", "z"], ["joined"], axis=1)], "joined"
    for kind in between:
        nodes.append(helper.make_node(kind, [last] if kind == "LeakyRelu" else [last, "two"], [kind]))
        last = kind
    nodes += [helper.make_node("Conv", [last, "w"], ["y"], name="joined"), helper.make_node("Relu", ["y"], ["a"])]
    nodes.append(helper.make_node("Conv", ["a", "w"], ["b"], name="after"))
    found = convolutions(helper.make_model(helper.make_graph(nodes, "g", [], [], [weight])))
    assert [layer.name for layer in found] == ["after"]


def test_tensorrt_parses_the_graph(rtx, graph, tmp_path):
    model = onnx.load(graph)
    onnx.save(to_int8(model, scales_of(model, uneven=True)), tmp_path / "model.onnx")
    builder = rtx.module.Builder(rtx.logger)
    manifest = manifest_for(FAMILY, TINY, tmp_path / "model.onnx")
    network = parse_network(rtx, builder, tmp_path / "model.onnx", manifest)
    kinds = [network.get_layer(index).type for index in range(network.num_layers)]
    assert kinds.count(rtx.module.LayerType.QUANTIZE) >= len(convolutions(model))
