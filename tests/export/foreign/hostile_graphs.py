"""Hostile ONNX files, generated in code from graphs that would otherwise be accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.export.foreign.inpainters import FLOAT, GraphMaker, carve_layout, value

SIDE = 32


def _inputs() -> list[Any]:
    return [value("image", FLOAT, 1, 3, SIDE, SIDE), value("mask", FLOAT, 1, 1, SIDE, SIDE)]


def _ending_in(build: Callable[[GraphMaker], str]) -> ModelProto:
    """Return a graph whose result depends on a value that `build` adds."""
    maker = GraphMaker()
    extra = maker.add("ReduceMean", maker.add("Cast", build(maker), to=FLOAT), keepdims=0)
    maker.add("Add", "image", extra, result="output")
    return maker.model(_inputs(), [value("output", FLOAT, 1, 3, SIDE, SIDE)])


def _changed(change: Callable[[ModelProto], Any]) -> ModelProto:
    model = carve_layout(SIDE)
    change(model)
    return model


def _whole(maker: GraphMaker, *numbers: int) -> str:
    return maker.constant(list(numbers), np.int64)


def custom_domain() -> ModelProto:
    def change(model: ModelProto) -> None:
        model.opset_import.append(helper.make_opsetid("com.evil", 1))
        model.graph.node[0].domain = "com.evil"

    return _changed(change)


def microsoft_operator() -> ModelProto:
    def change(model: ModelProto) -> None:
        model.graph.node[0].domain = "com.microsoft"

    return _changed(change)


def unknown_operator() -> ModelProto:
    return _ending_in(lambda maker: maker.add("RandomNormal", shape=[2]))


def python_operator() -> ModelProto:
    return _ending_in(lambda maker: maker.add("PyOp", "image"))


def local_function() -> ModelProto:
    def change(model: ModelProto) -> None:
        body = [helper.make_node("Relu", ["x"], ["y"])]
        model.functions.append(helper.make_function("", "Neg", ["x"], ["y"], body, [helper.make_opsetid("", 17)]))

    return _changed(change)


def future_opset() -> ModelProto:
    return carve_layout(SIDE, opset=99)


def deep_graphs() -> ModelProto:
    def branch(depth: int) -> Any:
        condition = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True), "c"))
        if depth == 0:
            last = helper.make_node("Constant", [], ["v"], value=numpy_helper.from_array(np.float32(1), "v"))
        else:
            inner = branch(depth - 1)
            last = helper.make_node("If", ["c"], ["v"], then_branch=inner, else_branch=inner)
        return helper.make_graph([condition, last], f"depth_{depth}", [], [value("v", FLOAT)])

    maker = GraphMaker()
    condition = maker.constant(True, np.bool_)
    maker.add("If", condition, result="v", then_branch=branch(6), else_branch=branch(0))
    maker.add("Add", "image", "v", result="output")
    return maker.model(_inputs(), [value("output", FLOAT, 1, 3, SIDE, SIDE)])


def many_nodes() -> ModelProto:
    def build(maker: GraphMaker) -> str:
        name = "image"
        for _ in range(20_001):
            name = maker.add("Neg", name)
        return name

    return _ending_in(build)


def _loop(turns: int | None) -> ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["still"]),
            helper.make_node("Add", ["carried", "carried"], ["doubled"]),
        ],
        "body",
        [value("turn", TensorProto.INT64), value("go", TensorProto.BOOL), value("carried", FLOAT)],
        [value("still", TensorProto.BOOL), value("doubled", FLOAT)],
    )

    def build(maker: GraphMaker) -> str:
        if turns is None:
            bound = maker.add("Cast", maker.add("ReduceSum", "mask", keepdims=0), to=TensorProto.INT64)
        else:
            bound = maker.constant(turns, np.int64)
        return maker.add("Loop", bound, maker.constant(True, np.bool_), maker.constant(0.0), body=body)

    return _ending_in(build)


def endless_loop() -> ModelProto:
    return _loop(2**62)


def loop_as_long_as_the_picture_says() -> ModelProto:
    return _loop(None)


def constant_of_a_terabyte() -> ModelProto:
    return _ending_in(lambda maker: maker.add("ConstantOfShape", _whole(maker, 2**20, 2**20)))


def expand_bomb() -> ModelProto:
    return _ending_in(lambda maker: maker.add("Expand", maker.constant([1.0]), _whole(maker, 65536, 65536)))


def tile_bomb() -> ModelProto:
    return _ending_in(lambda maker: maker.add("Tile", "image", _whole(maker, 1, 1, 60_000, 60_000)))


def resize_bomb() -> ModelProto:
    def build(maker: GraphMaker) -> str:
        return maker.add("Resize", "image", "", maker.constant([1.0, 1.0, 1e5, 1e5]), mode="nearest")

    return _ending_in(build)


def resize_to_infinity() -> ModelProto:
    def build(maker: GraphMaker) -> str:
        return maker.add("Resize", "image", "", maker.constant([1.0, 1.0, np.inf, np.nan]), mode="nearest")

    return _ending_in(build)


def range_bomb() -> ModelProto:
    def build(maker: GraphMaker) -> str:
        return maker.add("Range", *(maker.constant(x, np.float64) for x in (0.0, 1e6, 1e-6)))

    return _ending_in(build)


def pad_bomb() -> ModelProto:
    return _ending_in(lambda maker: maker.add("Pad", "image", _whole(maker, *[0] * 6, 2**40, 2**40)))


def pooling_with_huge_padding() -> ModelProto:
    return _ending_in(lambda maker: maker.add("MaxPool", "image", kernel_shape=[1, 1], pads=[2**30] * 4))


def sizes_hidden_behind_arithmetic() -> ModelProto:
    """Return a bomb whose size only shape inference finds: 2^14 · 2^4 in height and width."""

    def build(maker: GraphMaker) -> str:
        side = maker.add("Mul", _whole(maker, 2**14), _whole(maker, 2**4))
        return maker.add("ConstantOfShape", maker.add("Concat", side, side, axis=0))

    return _ending_in(build)


def growing_by_steps() -> ModelProto:
    """Return a chain of ten enlargements by 2, which together enlarge height and width by 2^10."""

    def build(maker: GraphMaker) -> str:
        name = "image"
        for _ in range(10):
            name = maker.add("Resize", name, "", maker.constant([1.0, 1.0, 2.0, 2.0]), mode="nearest")
        return name

    return _ending_in(build)


def _with_constant(**fields: Any) -> ModelProto:
    def change(model: ModelProto) -> None:
        tensor = TensorProto(name="extra", data_type=FLOAT)
        for name, content in fields.items():
            if isinstance(content, list):
                getattr(tensor, name).extend(content)
            else:
                setattr(tensor, name, content)
        model.graph.initializer.append(tensor)

    return _changed(change)


def claims_more_than_it_holds() -> ModelProto:
    return _with_constant(dims=[1000, 1000], raw_data=b"four")


def negative_dimension() -> ModelProto:
    return _with_constant(dims=[-1, 4], raw_data=b"")


def dimensions_that_overflow() -> ModelProto:
    return _with_constant(dims=[2**62, 8], raw_data=b"")


def text_constant() -> ModelProto:
    return _with_constant(dims=[1], string_data=[b"hello"], data_type=TensorProto.STRING)


def unknown_type() -> ModelProto:
    return _with_constant(dims=[1], raw_data=b"x", data_type=77)


def two_constants_of_one_name() -> ModelProto:
    return _changed(lambda model: model.graph.initializer.append(model.graph.initializer[0]))


def sparse_constant() -> ModelProto:
    def change(model: ModelProto) -> None:
        model.graph.sparse_initializer.add().dims.extend([2**40, 2**40])

    return _changed(change)


def names_that_steer_the_terminal() -> ModelProto:
    def change(model: ModelProto) -> None:
        model.graph.node[0].name = "\x1b]0;owned\x07\x1b[2J"
        model.graph.node[0].op_type = "\x1b[31mBoo\r\n"

    return _changed(change)


def circle() -> ModelProto:
    def change(model: ModelProto) -> None:
        first, second = model.graph.node[0], model.graph.node[1]
        first.input[0] = second.output[0]

    return _changed(change)


def types_that_contradict() -> ModelProto:
    return _ending_in(lambda maker: maker.add("Add", "image", _whole(maker, 1)))


def no_graph() -> ModelProto:
    return ModelProto(ir_version=8)


GRAPHS: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "custom domain": (custom_domain, "needs operators of 'com.evil'"),
    "operator of another domain that is not declared": (microsoft_operator, "com.microsoft"),
    "random numbers": (unknown_operator, "RandomNormal, which is not among the operators"),
    "code": (python_operator, "PyOp, which is not among the operators"),
    "function that redefines an operator": (local_function, "inline functions"),
    "opset of the future": (future_opset, "opset 99"),
    "graphs nested seven deep": (deep_graphs, "more than 3 deep"),
    "20,001 nodes": (many_nodes, "at most 20000 are accepted"),
    "endless loop": (endless_loop, "loops without a constant bound"),
    "loop as long as the picture says": (loop_as_long_as_the_picture_says, "loops without a constant bound"),
    "constant of a terabyte": (constant_of_a_terabyte, "too large"),
    "Expand bomb": (expand_bomb, "too large"),
    "Tile bomb": (tile_bomb, "too large"),
    "Resize bomb": (resize_bomb, "too large"),
    "Resize to infinity": (resize_to_infinity, "too large"),
    "Range bomb": (range_bomb, "too far"),
    "Pad bomb": (pad_bomb, "too large"),
    "pooling with huge padding": (pooling_with_huge_padding, "too large"),
    "sizes hidden behind arithmetic": (sizes_hidden_behind_arithmetic, "at most|address space|died"),
    "growing by steps": (growing_by_steps, "would have"),
    "claims more than it holds": (claims_more_than_it_holds, "claims 4000000 bytes and holds 4"),
    "negative dimension": (negative_dimension, "claims dimensions"),
    "dimensions that overflow": (dimensions_that_overflow, "claims 147573952589676412928 bytes"),
    "text": (text_constant, "is of type STRING"),
    "unknown type": (unknown_type, "is of type 77"),
    "two constants of one name": (two_constants_of_one_name, "two constants have one name"),
    "sparse constant": (sparse_constant, "sparse"),
    "names that steer the terminal": (names_that_steer_the_terminal, "which is not among the operators"),
    "circle": (circle, "contradict|cannot load"),
    "types that contradict each other": (types_that_contradict, "contradict each other"),
    "no graph": (no_graph, "holds no graph"),
}
