"""Graphs in the published layouts become models that engines run; errors about wrong flags say how to correct them.

The graphs are small stand-ins for the published files, which the tests do not have.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from engines.cpu.openvino_cpu import OpenVinoEngine
from engines.manifest import CARD_FILE, FixedSize, MultipleSize, read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from export.errors import ExportError, GraphRefused
from export.foreign.declaration import Declaration, parse_input_slice
from export.foreign.importing import ImportRequest, ImportResult, ReadGraph, import_model
from export.foreign.running import read_in_child
from tests.export.foreign import inpainters
from tests.export.foreign.reading import read_unguarded

pytestmark = pytest.mark.slow
PICTURES = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture
def bring(tmp_path):
    """Import a model with the flags of a declaration."""

    def brought(model: onnx.ModelProto, read: ReadGraph = read_unguarded, **flags) -> ImportResult:
        path = tmp_path / "foreign.onnx"
        onnx.save(model, path)
        flags |= {name: parse_input_slice(flags[name]) for name in ("image", "mask") if name in flags}
        declaration = Declaration(**flags)
        request = ImportRequest(path, "foreign", PICTURES, declaration, output=tmp_path / "models", licence="CC0")
        return import_model(request, lambda step: None, read)

    return brought


def photograph(side: int) -> tuple[np.ndarray, np.ndarray]:
    with Image.open(PICTURES / "dress.jpg") as picture:
        image = np.asarray(picture.convert("RGB").resize((side, side)), np.float32).transpose(2, 0, 1)[None] / 255
    mask = np.zeros((1, 1, side, side), np.float32)
    mask[..., side // 3 : side // 2, side // 3 : side // 2] = 1
    return np.ascontiguousarray(image), mask


def check_fill(made: ImportResult, side: int, tmp_path: Path) -> None:
    """Check that both CPU engines keep known pixels, fill the hole like its surroundings, and agree."""
    image, mask = photograph(side)
    outputs = []
    for engine in (
        OnnxRuntimeEngine(made.directory, made.manifest),
        OpenVinoEngine(made.directory, made.manifest, cache_dir=tmp_path / "cache"),
    ):
        output = engine.infer({"image": image, "mask": mask})["output"]
        engine.close()
        assert output.shape == image.shape
        known = np.broadcast_to(mask == 0, image.shape)
        assert np.abs(output - image)[known].mean() < 0.03
        hole = output[0][:, mask[0, 0] > 0]
        assert hole.min() > -0.01
        assert hole.max() < 1.01
        assert abs(hole.mean() - image.mean()) < 0.4
        outputs.append(output)
    assert np.abs(outputs[0] - outputs[1]).max() <= 2 / 255


def test_graph_of_one_size_in_0_to_255_needs_no_flag(bring, tmp_path):
    made = bring(inpainters.carve_layout(), read_in_child)
    assert made.manifest.size == FixedSize(height=128, width=128, fit="crop")
    assert made.manifest.max_batch == 1
    flags = {name: made.manifest.options[name] for name in ("image", "mask", "output-tensor", "layout", "composite")}
    assert list(flags.values()) == ["image", "mask", "output", "nchw", "inside"]
    ranges = [made.manifest.options[name] for name in ("image-range", "mask-range", "mask-means", "output-range")]
    assert ranges == ["0..1", "0..1", "hole", "0..255"]
    assert "the only interpretation" in " ".join(made.imported.found)
    assert made.manifest.licence == "CC0"
    assert made.manifest.parity.fill_levels == 1
    assert made.manifest.bf16_levels == pytest.approx(1 - 255 * max(one.max_abs for one in made.manifest.parity.cases))
    assert read_manifest(made.directory) == made.manifest
    assert "against the file's own graph" in (made.directory / CARD_FILE).read_text()
    check_fill(made, 128, tmp_path)


def test_graph_that_differs_by_more_than_a_grey_level_excludes_bf16_and_a_note_says_so(bring):
    def read_far_off(job, notify):
        report = read_unguarded(job, notify)
        cases = tuple(case.model_copy(update={"max_abs": 1.5 / 255}) for case in report.imported.cases)
        return report.model_copy(update={"imported": report.imported.model_copy(update={"cases": cases})})

    made = bring(inpainters.carve_layout(), read_far_off)
    assert (made.manifest.parity.fill_levels, made.manifest.bf16_levels) == (1.5, 0)
    assert made.imported.notes[-1] == (
        "the wrapped graph is 1.5 of 255 grey levels off: the manifest promises that, and CPUs compute in FP32"
    )


def test_graph_of_bytes_and_any_size_is_served_in_several(bring, tmp_path):
    made = bring(inpainters.pipeline_layout(), sides=(64, 128))
    assert made.manifest.size == MultipleSize(multiple_of=8, sides=(64, 128))
    assert made.manifest.options["mask-means"] == "known"
    assert made.manifest.options["image-range"] == made.manifest.options["output-range"] == "0..255"
    assert {case.inputs for case in made.manifest.parity.cases} >= {"batch of 3", "64×128"}
    check_fill(made, 128, tmp_path)


def test_child_makes_of_a_graph_what_this_process_makes_of_it(bring):
    made, unguarded = (
        bring(inpainters.pipeline_layout(), read, sides=(64,)) for read in (read_in_child, read_unguarded)
    )
    assert made.imported == unguarded.imported
    assert made.manifest.onnx_sha256 == unguarded.manifest.onnx_sha256


def _mirrored_channels(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph with BGR in place of RGB in its picture and its result."""
    graph = model.graph
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 1, 0]), "order"))
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = "mirrored" if name == "image" else name
    last = graph.node[-1]
    last.output[0] = "in_order"
    graph.node.insert(0, onnx.helper.make_node("Gather", ["image", "order"], ["mirrored"], axis=1))
    graph.node.append(onnx.helper.make_node("Gather", ["in_order", "order"], ["output"], axis=1))
    return model


def test_blue_first_and_a_value_in_the_hole_are_wired_into_the_graph(bring, tmp_path):
    ranges = {"image_range": "-1..1", "output_range": "-1..1"}
    made = bring(inpainters.joint_layout(64), **ranges, channels="bgr", hole_value=0.5)
    assert (made.manifest.options["channels"], made.manifest.options["hole-value"]) == ("bgr", "0.5")
    check_fill(made, 64, tmp_path)
    plain = bring(_mirrored_channels(inpainters.carve_layout(64)), channels="bgr")
    assert plain.manifest.options["channels"] == "bgr"
    check_fill(plain, 64, tmp_path)


def _that_adds(build) -> onnx.ModelProto:
    """Return a graph for any number of pictures that adds a value to its fill."""
    maker = inpainters.GraphMaker()
    maker.add("Add", inpainters.fill(maker, "image", "mask"), build(maker), result="output")
    shape = ["n", 3, 64, 64]
    inputs = [inpainters.value("image", 1, *shape), inpainters.value("mask", 1, "n", 1, 64, 64)]
    return maker.model(inputs, [inpainters.value("output", 1, *shape)])


def _mean_of_all_pictures(maker: inpainters.GraphMaker) -> str:
    total = maker.add("ReduceSum", maker.add("Sub", "image", maker.add("ReduceMax", "image", axes=[0])), keepdims=0)
    return maker.add("Mul", total, maker.constant(1e-4))


def _room_for_one(maker: inpainters.GraphMaker) -> str:
    one = maker.add("Reshape", "mask", maker.constant([1, 1, 64, 64], np.int64))
    return maker.add("Mul", one, maker.constant(0.0))


@pytest.mark.parametrize(
    ("build", "note"),
    [
        (_mean_of_all_pictures, "in a batch pictures change each other"),
        (_room_for_one, "the graph fails on a batch of three"),
    ],
)
def test_graph_that_cannot_take_several_pictures_is_served_one_at_a_time(bring, build, note):
    made = bring(_that_adds(build), image_range="0..1", output_range="0..1")
    assert made.manifest.max_batch == 1
    assert note in " ".join(made.imported.notes)


def test_operators_that_are_newer_than_an_engine_are_noted(bring):
    made = bring(inpainters.carve_layout(64, opset=18))
    assert "TensorRT 8.6 stops at 17" in " ".join(made.imported.notes)


def test_free_batch_is_kept(bring):
    assert bring(inpainters.carve_layout(64, "n")).manifest.max_batch == 32


def test_one_input_with_mask_and_picture_is_wired_by_its_channels(bring, tmp_path):
    made = bring(inpainters.joint_layout(64), image_range="-1..1", output_range="-1..1")
    flags = made.manifest.options
    assert (flags["image"], flags["mask"]) == ("input[1:4]", "input[0:1]")
    assert (flags["mask-range"], flags["mask-means"], flags["composite"]) == ("-0.5..0.5", "known", "outside")
    check_fill(made, 64, tmp_path)


def test_channels_last_are_seen(bring, tmp_path):
    made = bring(inpainters.nhwc_layout(64), image_range="0..1")
    assert made.manifest.options["layout"] == "nhwc"
    check_fill(made, 64, tmp_path)


def test_external_data_beside_the_graph_is_taken_in(bring, tmp_path):
    whole = bring(inpainters.carve_layout(64))
    onnx.save(
        inpainters.carve_layout(64),
        tmp_path / "split.onnx",
        save_as_external_data=True,
        location="data",
        size_threshold=0,
    )
    made = import_model(
        ImportRequest(tmp_path / "split.onnx", "split", PICTURES, output=tmp_path / "models"), lambda step: None
    )
    assert (tmp_path / "data").stat().st_size > 0
    assert (made.directory / "model.onnx").read_bytes() == (whole.directory / "model.onnx").read_bytes()
    assert made.manifest.checkpoint_sha256 != whole.manifest.checkpoint_sha256


WRONG = [
    ({"image_range": "0..255"}, "--image-range 0..1"),
    ({"output_range": "0..1"}, "--output-range 0..255"),
    ({"output_range": "-1..1"}, "--output-range 0..255"),
    ({"mask_means": "known"}, "--mask-means hole"),
    ({"mask_range": "-0.5..0.5"}, "--mask-range 0..1"),
]


@pytest.mark.parametrize(("flags", "mended"), WRONG)
def test_wrong_flag_is_noticed_and_the_right_one_is_suggested(bring, flags, mended):
    right = {"image_range": "0..1", "mask_range": "0..1", "mask_means": "hole", "output_range": "0..255"}
    with pytest.raises(GraphRefused, match="as declared the graph does not inpaint") as caught:
        bring(inpainters.carve_layout(64), image="image", mask="mask", **{**right, **flags})
    advice = str(caught.value).split("With ")[1]
    assert mended in advice
    assert advice.count("--") == 1


def test_composite_that_is_not_inside_is_noticed(bring):
    flags = {"image_range": "-1..1", "output_range": "-1..1", "composite": "inside"}
    with pytest.raises(GraphRefused, match="With --composite outside it does"):
        bring(inpainters.joint_layout(64), **flags)


def test_what_cannot_be_measured_is_asked_for(bring):
    with pytest.raises(GraphRefused, match=r"--image-range 0\.\.1 --output-range 0\.\.1; or --image-range -1\.\.1"):
        bring(inpainters.joint_layout(64))


def _with_third_input() -> onnx.ModelProto:
    model = inpainters.carve_layout(64)
    model.graph.input.append(inpainters.value("noise", inpainters.FLOAT, 1, 8, 64, 64))
    return model


def _passing_through() -> onnx.ModelProto:
    maker = inpainters.GraphMaker()
    maker.add("Add", "image", maker.add("Mul", "mask", maker.constant(0.0)), result="output")
    inputs = [inpainters.value("image", 1, 1, 3, 64, 64), inpainters.value("mask", 1, 1, 1, 64, 64)]
    return maker.model(inputs, [inpainters.value("output", 1, 1, 3, 64, 64)])


def _with_rank_three() -> onnx.ModelProto:
    model = inpainters.carve_layout(64)
    model.graph.input[1].CopyFrom(inpainters.value("mask", 1, 1, 64, 64))
    return model


def _with_two_outputs() -> onnx.ModelProto:
    model = inpainters.carve_layout(64)
    model.graph.output.append(inpainters.value(model.graph.node[0].output[0], 1))
    return model


MISFITS = [
    (_with_third_input, {}, r"which input is the picture.*noise float32 1×8×64×64"),
    (_with_third_input, {"image": "image", "mask": "mask"}, "the graph has another input, noise float32 1×8×64×64"),
    (_passing_through, {}, "no interpretation of the graph fills the hole"),
    (_with_rank_three, {}, "has 3 dimensions; pictures and masks have four"),
    (_with_two_outputs, {}, "which output is the picture.*--output-tensor"),
    (lambda: inpainters.carve_layout(64), {"image": "picture"}, "has no such input; it has image"),
    (lambda: inpainters.carve_layout(64), {"sides": (64,)}, "the graph computes 64×64 only.*leave out --sides$"),
    (lambda: inpainters.carve_layout(64), {"multiple_of": 8}, "64×64 only: no sides.*leave out --multiple-of"),
    (lambda: inpainters.joint_layout(64), {"image": "input[0:2]", "mask": "input[3]"}, "channel is to be filled once"),
    (inpainters.pipeline_layout, {"sides": (100, 60)}, "they must ascend"),
]


@pytest.mark.parametrize(("make", "flags", "reason"), MISFITS)
def test_graph_that_does_not_fit_is_refused_with_what_is_missing(bring, tmp_path, make, flags, reason):
    with pytest.raises(GraphRefused, match=reason):
        bring(make(), **flags)
    assert list((tmp_path / "models").iterdir()) == []


def test_name_and_folder_are_checked_before_the_file(tmp_path):
    with pytest.raises(ExportError, match="lower-case letters"):
        import_model(ImportRequest(tmp_path / "x.onnx", "No!", PICTURES, output=tmp_path), lambda step: None)
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="cannot be written"):
        import_model(ImportRequest(tmp_path / "x.onnx", "x", PICTURES, output=tmp_path / "file"), lambda step: None)
