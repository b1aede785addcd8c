"""Inputs and result of a foreign graph: found by shape and name, or named by flags."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import ModelProto, TensorProto

from export.errors import GraphRefused
from export.foreign.declaration import Declaration, parse_input_slice
from export.foreign.ports import find_ports
from tests.export.foreign.inpainters import FLOAT, GraphMaker, value


def graph(*inputs: Any) -> ModelProto:
    maker = GraphMaker()
    maker.add("Identity", inputs[0].name, result="output")
    return maker.model(inputs, [value("output", FLOAT)])


def picture_and_mask(model: ModelProto, **said: str) -> tuple[str, str]:
    declared = Declaration(**{name: parse_input_slice(source) for name, source in said.items()})
    ports, _ = find_ports(model, declared)
    ((picture, mask),) = ports.candidates
    return str(picture), str(mask)


PAIR = (value("a", FLOAT, 1, 3, 8, 8), value("b", FLOAT, 1, 3, 8, 8))


def test_the_other_input_is_the_one_that_was_not_named() -> None:
    assert picture_and_mask(graph(*PAIR), mask="a") == ("b", "a")
    assert picture_and_mask(graph(*PAIR), image="a") == ("a", "b")


def test_an_input_of_one_channel_or_called_mask_is_the_mask() -> None:
    assert picture_and_mask(graph(PAIR[0], value("b", FLOAT, 1, 1, 8, 8))) == ("a", "b")
    assert picture_and_mask(graph(value("the_mask", FLOAT, 1, 3, 8, 8), PAIR[1])) == ("b", "the_mask")


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (PAIR, "which input is the mask"),
        ((PAIR[0],), "a float32 1×3×8×8 and no mask, and only inpainting graphs can be imported"),
        ((PAIR[0], value("b", FLOAT, 1, 1, 16, 16)), "must have the same size"),
        ((PAIR[0], value("b", FLOAT, 1, 1, "h", "w")), "must have the same size"),
        ((value("a", FLOAT, 1, 4, 8, "w"),), "height and width must be both fixed or both dynamic"),
        ((value("a", FLOAT, 2, 4, 8, 8),), "the batch size must be dynamic or 1"),
        ((value("a", TensorProto.STRING, 1, 4, 8, 8),), "is not a tensor of plain numbers"),
    ],
)
def test_inputs_that_are_no_picture_and_mask_are_refused(inputs: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(GraphRefused, match=reason):
        find_ports(graph(*inputs), Declaration())


def test_a_result_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(GraphRefused, match="--output-tensor fill: the graph has no such output; it has output"):
        find_ports(graph(value("a", FLOAT, 1, 4, 8, 8)), Declaration(output="fill"))
