"""A manifest is accepted only if every field matches the schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from engines.errors import ManifestInvalid
from engines.manifest import MANIFEST_FILE, ParityCase, read_manifest
from tests.engines.conftest import INT8, QUANTISATION


def edited(directory: Path, **fields: object) -> Path:
    path = directory / MANIFEST_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return directory


def test_manifest_that_was_written_reads_back_equal(publish, make_manifest):
    manifest = make_manifest()
    assert read_manifest(publish(manifest)) == manifest


def test_missing_file_says_what_to_do(tmp_path):
    with pytest.raises(ManifestInvalid, match="export the model again"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema_version", 2),
        ("name", "../etc"),
        ("version", 0),
        ("task", "upscale"),
        ("onnx_sha256", "abc"),
        ("max_batch", 0),
        ("size", {"kind": "multiple", "multiple_of": 8, "sides": [12]}),
        ("surprise", 1),
    ],
)
def test_bad_field_is_named(publish, field, value):
    with pytest.raises(ManifestInvalid, match=field):
        read_manifest(edited(publish(), **{field: value}))


def _huge(dimension: object) -> list[dict[str, object]]:
    return [{"name": "latent", "dtype": "float32", "shape": ["batch", dimension]}]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "size",
            {"kind": "fixed", "height": 10**9, "width": 256},
            r"size\.fixed\.height: it must be at most 8192, not 1000000000$",
        ),
        (
            "size",
            {"kind": "multiple", "multiple_of": 8, "sides": [10**9]},
            r"sides\.0: it must be at most 8192, not 1000000000;",
        ),
        ("size", {"kind": "multiple", "multiple_of": 1, "sides": list(range(1, 9000))}, "sides: .*at most 64 items"),
        ("inputs", _huge(10**9), r"inputs\.0\.shape\.1: it must be at most 8192, .*not 1000000000$"),
        ("inputs", _huge(0), r"inputs\.0\.shape\.1: it must be at least 1, .*not 0$"),
    ],
)
def test_a_tile_that_no_engine_could_hold_is_refused_before_one_is_opened(publish, field, value, message):
    with pytest.raises(ManifestInvalid, match=message):
        read_manifest(edited(publish(), **{field: value}))


def test_channels_are_those_of_image_and_output(make_manifest):
    manifest = make_manifest()
    assert (manifest.key, manifest.image_channels, manifest.output_channels) == ("tiny/1", 3, 3)
    assert make_manifest("generate").image_channels == 0


def test_buckets_are_every_pair_of_sides_or_the_one_size(make_manifest):
    assert list(make_manifest().size.tile_sizes()) == [(16, 16), (16, 32), (32, 16), (32, 32)]
    assert list(make_manifest(size={"kind": "fixed", "height": 8, "width": 9}).size.tile_sizes()) == [(8, 9)]


def test_sides_that_do_not_ascend_are_refused(make_manifest):
    with pytest.raises(ValidationError, match="must ascend"):
        make_manifest(size={"kind": "multiple", "multiple_of": 8, "sides": [32, 16]})


def test_samples_go_in_and_come_out_or_neither(make_manifest):
    together = {"name": "latent", "dtype": "float32", "shape": ["batch", "samples", 8]}
    output = {"name": "output", "dtype": "float32", "shape": ["batch", "samples", 3, "height", "width"]}
    manifest = make_manifest("generate", inputs=[together], output=output)
    assert (manifest.has_latent, manifest.samples_together, manifest.output_channels) == (True, True, 3)
    assert (make_manifest("generate").has_latent, make_manifest("generate").samples_together) == (True, False)
    assert not make_manifest().has_latent
    with pytest.raises(ValidationError, match="samples"):
        make_manifest("generate", inputs=[together])


def test_a_manifest_of_before_there_were_measured_rules_is_read(publish, make_manifest):
    directory = publish(make_manifest())
    path = directory / MANIFEST_FILE
    written = json.loads(path.read_text())
    written["size"].pop("auto")
    path.write_text(json.dumps(written))
    assert read_manifest(directory) == make_manifest()


def test_measured_rules_are_read_and_checked(publish, make_manifest):
    size = json.loads(make_manifest().model_dump_json())["size"]
    rules = {"measured": "here", "rules": [{"longest_side": 512, "strategy": "whole"}]}
    found = read_manifest(edited(publish(make_manifest()), size={**size, "auto": rules}))
    assert found.size.auto is not None
    assert found.size.auto.rules[0].strategy == "whole"
    rules["rules"][0]["strategy"] = "half"
    with pytest.raises(ManifestInvalid, match=r"size.*strategy"):
        read_manifest(edited(publish(make_manifest(version=2)), size={**size, "auto": rules}))


def test_an_int8_manifest_tells_how_it_was_made_and_reads_back_equal(publish, make_manifest):
    manifest = make_manifest(**INT8)
    assert manifest.quantisation.kept[0].alone_db == 31.5
    assert read_manifest(publish(manifest)) == manifest


@pytest.mark.parametrize("fields", [{"precision": "int8"}, {"quantisation": QUANTISATION}], ids=["no figures", "fp32"])
def test_int8_and_its_figures_belong_together(make_manifest, fields):
    with pytest.raises(ValidationError, match="either both or neither"):
        make_manifest(**fields)


def parity_with(fill_levels: float | None, max_abs: float = 0.0) -> dict[str, object]:
    backends = {"onnx-fp16": max_abs, "onnx-fp32": 0.5, "program-fp16": 0.5}
    facts = {"inputs": "full", "psnr_db": 50.0, "finite": True}
    cases = [{"backend": backend, "max_abs": most, **facts} for backend, most in backends.items()]
    return {"bar_db": 45.0, "fill_levels": fill_levels, "cases": cases}


def test_what_the_graph_itself_differs_by_leaves_less_for_bf16(make_manifest):
    assert make_manifest(precision="fp16", parity=parity_with(1, 0.1 / 255)).bf16_levels == pytest.approx(0.9)
    assert make_manifest(precision="fp16", parity=parity_with(1, 3 / 255)).bf16_levels == 0


@pytest.mark.parametrize(("levels", "kept"), [(1.5, 1.5), (1.5001, 1.51), (0, 0)])
def test_what_a_graph_can_promise_is_its_own_distance_in_hundredths_rounded_up(levels, kept):
    case = ParityCase(backend="onnx", inputs="full", psnr_db=50, max_abs=levels / 255, finite=True)
    assert case.levels_kept == kept


@pytest.mark.parametrize("distance", ["NaN", "Infinity", "1e400", "-1"])
def test_a_distance_that_is_no_number_is_refused_also_in_a_report_of_others(distance):
    report = f'{{"backend": "onnx", "inputs": "full", "psnr_db": 50, "max_abs": {distance}, "finite": true}}'
    with pytest.raises(ValidationError, match="max_abs"):
        ParityCase.model_validate_json(report)


def test_what_an_imported_graph_differs_from_its_file_by_leaves_less_for_bf16(make_manifest):
    case = {"backend": "onnx", "inputs": "full", "psnr_db": 50.0, "max_abs": 0.25 / 255, "finite": True}
    imported = {"bar_db": 45.0, "fill_levels": 1, "cases": [case]}
    for precision in ("fp16", "fp32"):
        assert make_manifest(precision=precision, parity=imported).bf16_levels == pytest.approx(0.75)


def test_bf16_has_no_limit_of_levels_unless_the_manifest_states_one(make_manifest):
    assert make_manifest(parity=parity_with(None)).bf16_levels is None
    assert make_manifest(parity={"bar_db": 45.0, "cases": []}).bf16_levels is None
    assert make_manifest(**{**INT8, "parity": parity_with(1)}).bf16_levels is None
