"""Every family's own test builds a real TensorRT plan; graphs that cannot be built are listed here."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

from engines.errors import EngineUnavailable
from engines.trt.build import BuildOptions, ComputeCapability, build_plan
from export.generators import FAMILIES

pytestmark = pytest.mark.slow

ADA = BuildOptions(targets=(ComputeCapability(8, 9),))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_familys_test_builds_a_plan(name):
    folder = Path(__file__).parents[1] / "generators"
    files = [*folder.glob(f"test_{name}.py"), *folder.glob(f"{name}/test_generator.py")]
    assert ["check_plan(" in path.read_text("utf-8") for path in files] == [True]


def test_operator_that_cannot_be_parsed_is_named(rtx, write_half, tmp_path):
    family = FAMILIES["dcgan"]
    manifest = write_half(family, family.options.model_validate({"nz": 4, "ngf": 2}))
    graph = onnx.load(tmp_path / "model.onnx")
    last = graph.graph.node[-1]
    graph.graph.node.append(helper.make_node("Frobnicate", ["before"], [last.output[0]], domain="acme"))
    last.output[0] = "before"
    graph.opset_import.append(helper.make_opsetid("acme", 1))
    onnx.save(graph, tmp_path / "model.onnx")
    with pytest.raises(EngineUnavailable, match="cannot parse tiny/1: operator Frobnicate"):
        build_plan(rtx, tmp_path, manifest, ADA)


def test_means_over_instances_are_left_to_other_engines_with_the_name_of_what_they_need(rtx, write_half, tmp_path):
    family = FAMILIES["pix2pixhd"]
    sizes = {"ngf": 2, "downsamplings": 2, "blocks": 1, "features": 3, "encoder_width": 2}
    manifest = write_half(family, family.options.model_validate(sizes))
    with pytest.raises(EngineUnavailable, match="cannot parse tiny/1: operator ScatterElements"):
        build_plan(rtx, tmp_path, manifest, ADA)
