"""Limits on a graph's description: the numbers of its ports, names, attributes and values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from export.errors import GraphRefused
from export.foreign.guard.policy import check_policy
from tests.export.foreign.inpainters import FLOAT, GraphMaker, carve_layout, value

Change = Callable[[ModelProto], object]


def _with_outputs(count: int) -> Change:
    return lambda model: model.graph.output.extend([value(f"more_{i}", FLOAT) for i in range(count)])


def _with_claims(count: int) -> Change:
    dims = [2**14, 2**14]  # 1 GiB each
    return lambda model: model.graph.initializer.extend(
        [TensorProto(name=f"claim_{i}", data_type=FLOAT, dims=dims) for i in range(count)]
    )


def _with_node(operator: str, *inputs: str, **attributes: object) -> Change:
    return lambda model: model.graph.node.append(helper.make_node(operator, inputs, ["extra"], "last", **attributes))


def _refer_to_a_function(model: ModelProto) -> None:
    model.graph.node[0].attribute.add(name="alpha", ref_attr_name="of_the_function", type=1)


def _store_in_segments(model: ModelProto) -> None:
    model.graph.initializer[0].segment.begin = 0


TOO_MUCH: dict[str, tuple[Change, str]] = {
    "format of the future": (lambda model: setattr(model, "ir_version", 99), "format version 99 is newer than"),
    "seventeen outputs": (_with_outputs(16), "more than 16 inputs or outputs"),
    "constants of 2 GiB together": (_with_claims(2), "the constants claim 2147"),
    "a long name": (_with_node("Relu", "x" * 301), "names of more than 300 characters"),
    "many attributes": (
        _with_node("Relu", "image", **{f"more_{i}": i for i in range(65)}),
        "node 'last' has 65 attributes",
    ),
    "a function's attribute": (_refer_to_a_function, "'alpha' of node .* is of a kind that is not accepted"),
    "numbers that are spelt out": (_with_node("Constant", value_ints=list(range(1025))), "spells out 1025 numbers"),
    "segments": (_store_in_segments, "is stored in segments"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_graph_with_too_much_of_something_is_refused(name: str) -> None:
    model = carve_layout(32)
    check_policy(model)
    change, reason = TOO_MUCH[name]
    change(model)
    with pytest.raises(GraphRefused, match=reason):
        check_policy(model)


def test_shape_of_many_sizes_is_refused() -> None:
    maker = GraphMaker()
    maker.add("Expand", "image", maker.constant([1] * 65, np.int64), result="output")
    model = maker.model([value("image", FLOAT, 1, 3, 8, 8)], [value("output", FLOAT)])
    with pytest.raises(GraphRefused, match="is given 65 sizes"):
        check_policy(model)


@pytest.mark.parametrize("step", ["measured", "two values"])
def test_range_whose_step_is_not_known_is_left_to_the_inference_of_sizes(step: str) -> None:
    maker = GraphMaker()
    start, limit = maker.constant(0.0), maker.constant(1e9)
    size = maker.add("ReduceMean", "image", keepdims=0) if step == "measured" else maker.constant([1.0, 2.0])
    maker.add("Range", start, limit, size, result="output")
    check_policy(maker.model([value("image", FLOAT, 1, 3, 8, 8)], [value("output", FLOAT)]))


def test_constants_in_nodes_count_as_those_beside_them() -> None:
    maker = GraphMaker()
    turns = helper.make_node("Constant", [], ["turns"], value=helper.make_tensor("t", TensorProto.INT64, [], [2**40]))
    maker.nodes.append(turns)
    body = helper.make_graph([], "body", [value("i", 7), value("go", 9)], [value("go", 9)])
    maker.add("Loop", "turns", maker.constant(True, np.bool_), body=body, result="output")
    with pytest.raises(GraphRefused, match="loops without a constant bound"):
        check_policy(maker.model([value("image", FLOAT, 1, 3, 8, 8)], [value("output", FLOAT)]))
