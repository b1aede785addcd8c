from __future__ import annotations

import pytest

from engines.manifest import Manifest, MultipleSize, Parity, ParityCase, TensorSpec, read_manifest
from export.card import card_text
from export.checkpoint import sha256_of
from export.generators.family import image_tensor, instance_map, label_map
from export.publish import next_version, publish

CASES = (
    ParityCase(backend="onnx-fp16", inputs="ordinary 1", psnr_db=61.26, max_abs=0.0012, finite=True),
    ParityCase(backend="onnx-fp32", inputs="full mask", psnr_db=None, max_abs=0, finite=True),
)


def _manifest(version=1, **changes):
    fields = {
        "name": "photos",
        "version": version,
        "task": "inpaint",
        "generator": "pconv",
        "options": {"levels": 3},
        "inputs": (image_tensor("image", 3), image_tensor("mask", 1)),
        "output": image_tensor("output", 3),
        "size": MultipleSize(multiple_of=8, sides=(8,)),
        "max_batch": 4,
        "precision": "fp16",
        "opset": 17,
        "onnx_sha256": "0" * 64,
        "checkpoint_sha256": "1" * 64,
        "licence": "CC0",
        "training_data": "none",
        "parity": Parity(bar_db=45, cases=CASES),
        "quality": {"psnr_db": 30.5},
    }
    return Manifest(**{**fields, **changes})


@pytest.fixture
def graph(tmp_path):
    staging = tmp_path / ".staging"
    staging.mkdir()
    path = staging / "graph.onnx"
    path.write_bytes(b"graph")
    return path


def test_first_version_is_one_and_holds_the_three_files(tmp_path, graph):
    digest = sha256_of(graph)
    directory, manifest = publish({"model.onnx": graph}, tmp_path, _manifest)
    assert (directory, manifest.version) == (tmp_path / "photos" / "1", 1)
    assert sorted(path.name for path in directory.iterdir()) == ["card.md", "manifest.json", "model.onnx"]
    assert read_manifest(directory) == manifest
    assert sha256_of(directory / "model.onnx") == digest


def test_versions_follow_the_highest(tmp_path, graph):
    for name in ("1", "7", "notes", ".hidden"):
        (tmp_path / "photos" / name).mkdir(parents=True)
    assert next_version(tmp_path, "photos") == 8
    assert publish({"model.onnx": graph}, tmp_path, _manifest)[0].name == "8"


@pytest.fixture
def occupy(tmp_path):
    """Return manifest functions for `publish` that create version 1 between its check and its rename."""

    def occupying(what):
        def manifest_of(version):
            if version == 1 and (tmp_path / "photos").exists():
                what(tmp_path / "photos" / "1")
            (tmp_path / "photos").mkdir(exist_ok=True)
            return _manifest(version)

        return manifest_of

    return occupying


def test_a_version_taken_meanwhile_is_stepped_over(tmp_path, graph, occupy):
    def published(target):
        target.mkdir()
        (target / "manifest.json").write_text("theirs")

    directory, manifest = publish({"model.onnx": graph}, tmp_path, occupy(published))
    assert (directory.name, manifest.version) == ("2", 2)
    assert (directory / "model.onnx").read_bytes() == b"graph"
    assert [path.read_text() for path in (tmp_path / "photos" / "1").iterdir()] == ["theirs"]


def test_other_failures_of_the_rename_are_not_hidden(tmp_path, graph, occupy):
    with pytest.raises(NotADirectoryError):
        publish(
            {"model.onnx": graph},
            tmp_path,
            occupy(lambda target: target.write_text("a file where the folder should be")),
        )


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "| onnx-fp16 | ordinary 1 | 61.3 | 0.0012 |"),
        ({}, "| onnx-fp32 | full mask | identical | 0 |"),
        ({}, "| quality: psnr_db | 30.5 |"),
        ({}, "| size | multiples of 8; served with sides 8; other pictures: pad |"),
        ({}, "| inputs | `image` float32 batch×3×height×width; `mask` float32 batch×1×height×width |"),
        ({"size": {"kind": "fixed", "height": 8, "width": 9}}, "| size | 8×9 only; other pictures: resize |"),
        (
            {},
            "curl -F model=photos -F image=@photo.jpg -F mask=@mask.png http://127.0.0.1:8000/v1/inpaint -o filled.png",
        ),
        (
            {"task": "generate", "inputs": (TensorSpec(name="latent", dtype="float32", shape=("batch", 8)),)},
            "curl -F model=photos -F seed=1 http://127.0.0.1:8000/v1/generate -o generated.png",
        ),
        (
            {"task": "translate", "inputs": (label_map(13), instance_map())},
            (
                "curl -F model=photos -F image=@labels.png -F instance=@instances.png "
                "http://127.0.0.1:8000/v1/translate -o translated.png"
            ),
        ),
    ],
)
def test_card_states_what_the_manifest_holds(changes, line):
    assert line in card_text(_manifest(**changes)).splitlines()


def test_the_card_tells_what_a_promise_of_grey_levels_leaves_for_bf16():
    promised = Parity(bar_db=45, fill_levels=1, cases=CASES)
    left = "A CPU computes in bf16 if that changes no fill by more than 0.69 of 255 grey levels."
    assert left in card_text(_manifest(parity=promised))
    assert "grey levels" not in card_text(_manifest())
    own = Parity(bar_db=45, fill_levels=CASES[0].levels_kept, cases=CASES)
    assert "a CPU computes in FP32" in card_text(_manifest(parity=own))
