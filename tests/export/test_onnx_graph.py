from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

from engines.manifest import FixedSize, MultipleSize
from export.errors import GraphInvalid
from export.generators.family import Interface, image_tensor
from export.lowering import InstanceNorm32, to_half
from export.onnx_graph import OPSET, check_graph, drop_idle_casts, fold_constants, write_graph
from export.parity import onnx_backend

INTERFACE = Interface(
    "translate", (image_tensor("image", 3),), image_tensor("output", 3), MultipleSize(multiple_of=4, sides=(8, 16))
)


class Net(nn.Module):
    """A net with reflection padding, a convolution and an instance norm, as in the generators."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, 3, 3), InstanceNorm32(), nn.Tanh())

    def forward(self, image: Tensor) -> Tensor:
        x = image.half() if next(self.parameters()).dtype == torch.float16 else image
        return self.layers(x).float() * 0.5


@pytest.fixture
def graph(tmp_path):
    write_graph(Net().eval(), INTERFACE, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def _types(path):
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    kinds = {v.name: v.type.tensor_type.elem_type for v in model.graph.value_info}
    kinds |= {t.name: t.data_type for t in model.graph.initializer}
    return {node.op_type: [kinds.get(name) for name in node.output] for node in model.graph.node}, model


def test_graph_takes_any_batch_and_size_that_the_interface_leaves_open(graph):
    run = onnx_backend(graph)
    for shape in ((1, 3, 8, 8), (5, 3, 16, 12)):
        assert run({"image": np.zeros(shape, np.float32)}).shape == shape


def test_graph_is_opset_17_and_names_the_contracts_dimensions(graph):
    model = onnx.load(graph)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", OPSET)]
    assert [d.dim_param or d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim] == [
        "batch",
        3,
        "height",
        "width",
    ]


def test_reflected_borders_are_a_single_node(graph):
    assert [node.op_type for node in onnx.load(graph).graph.node].count("Pad") == 1


def test_instance_norm_is_made_of_operators_that_every_runtime_has(graph):
    kinds = {node.op_type for node in onnx.load(graph).graph.node}
    assert kinds == {"Pad", "Conv", "ReduceMean", "Sub", "Mul", "Add", "Sqrt", "Div", "Tanh"}


def test_full_graph_keeps_what_a_flat_areas_norm_amplifies(tmp_path):
    """ONNX's InstanceNormalization, which sums a whole plane at once, is off by 0.08 here."""
    norm = InstanceNorm32(torch.tensor([2.0, 0.5, 1.0]), torch.tensor([0.1, -0.2, 0.3]))
    write_graph(norm.eval(), INTERFACE, tmp_path / "graph.onnx")
    noise = torch.randn(2, 3, 512, 512, generator=torch.Generator().manual_seed(1))
    x = 0.7 + 1e-4 * noise
    wanted = nn.functional.instance_norm(x.double(), weight=norm.weight.double(), bias=norm.bias.double())
    found = onnx_backend(tmp_path / "graph.onnx")({"image": x.numpy()})
    assert np.abs(found - wanted.numpy()).max() <= 2e-4


def test_half_graph_keeps_floats_outside_and_in_the_norm_and_halves_in_the_convolution(tmp_path):
    write_graph(to_half(Net().eval()), INTERFACE, tmp_path / "half.onnx")
    kinds, model = _types(tmp_path / "half.onnx")
    assert kinds["Conv"] == [TensorProto.FLOAT16]
    assert kinds["ReduceMean"] == kinds["Sqrt"] == kinds["Div"] == [TensorProto.FLOAT]
    ends = (*model.graph.input, *model.graph.output)
    assert {value.type.tensor_type.elem_type for value in ends} == {TensorProto.FLOAT}
    assert onnx_backend(tmp_path / "half.onnx")({"image": np.ones((2, 3, 8, 8), np.float32)}).dtype == np.float32


def test_full_graph_has_no_casts(graph):
    assert "Cast" not in {node.op_type for node in onnx.load(graph).graph.node}


def test_tensors_other_than_the_contracts_are_refused(graph):
    other = Interface(INTERFACE.task, (image_tensor("image", 1),), INTERFACE.output, INTERFACE.size)
    with pytest.raises(GraphInvalid, match="the graph's tensors are"):
        check_graph(graph, other)


def test_other_opsets_are_refused(graph):
    model = onnx.load(graph)
    model.opset_import[0].version = 16
    onnx.save(model, graph)
    with pytest.raises(GraphInvalid, match="instead of 17 alone"):
        check_graph(graph, INTERFACE)


def test_invalid_graphs_are_refused(graph):
    model = onnx.load(graph)
    del model.graph.node[1]
    onnx.save(model, graph)
    with pytest.raises(GraphInvalid, match="invalid graph"):
        check_graph(graph, INTERFACE)


def test_fixed_sizes_are_written_as_numbers(tmp_path):
    side = (8, 8)
    fixed = Interface(
        "translate",
        (image_tensor("image", 3, side=side),),
        image_tensor("output", 3, side=side),
        FixedSize(height=8, width=8),
    )
    write_graph(Net().eval(), fixed, tmp_path / "fixed.onnx")
    shape = onnx.load(tmp_path / "fixed.onnx").graph.input[0].type.tensor_type.shape
    assert [d.dim_param or d.dim_value for d in shape.dim] == ["batch", 3, 8, 8]


def _model(nodes, initializers=()):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, [2])], list(initializers)
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def test_constant_chains_are_folded_and_the_rest_is_left():
    two = helper.make_tensor("two", TensorProto.FLOAT, [1], [2.0])
    nodes = [
        helper.make_node("Mul", ["two", "two"], ["four"]),
        helper.make_node("Neg", ["four"], ["minus_four"]),
        helper.make_node("Add", ["x", "minus_four"], ["y"]),
    ]
    model = _model(nodes, [two])
    fold_constants(model)
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["Add"]
    assert model.graph.initializer[-1].name == "minus_four"


def test_nodes_with_graphs_inside_are_not_folded():
    branch = helper.make_graph(
        [helper.make_node("Identity", ["one"], ["b"])],
        "b",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [1])],
    )
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    nodes = [
        helper.make_node("If", ["yes"], ["c"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    model = _model(nodes, [one, yes])
    fold_constants(model)
    assert [node.op_type for node in model.graph.node] == ["If", "Add"]


def test_casts_that_change_nothing_are_bridged_and_others_stay():
    nodes = [
        helper.make_node("Cast", ["x"], ["idle"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["idle"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["half"], ["y"], to=TensorProto.FLOAT),
    ]
    model = _model(nodes)
    drop_idle_casts(model)
    onnx.checker.check_model(model, full_check=True)
    assert [list(node.input) for node in model.graph.node] == [["x"], ["half"]]


def test_a_cast_that_makes_the_output_stays():
    model = _model([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)])
    drop_idle_casts(model)
    assert len(model.graph.node) == 1
