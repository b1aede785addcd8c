"""A short sweep over a real model folder on the fake engine, from pictures to rules that the service follows."""

from __future__ import annotations

import json
import stat
from datetime import date

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from engines.engine_choice import EngineOptions
from engines.errors import ModelError
from engines.fill_rules import FillRule, FillRules
from engines.manifest import read_manifest
from retouch.command_line import app
from retouch.sweep.session import SweepImpossible, SweepRequest, sweep, write_rules
from tests.retouch.small_models import write_model
from training.errors import DataMissing
from training.losses.lpips_distance import Lpips


@pytest.fixture
def features(tmp_path):
    torch.manual_seed(0)
    state = {key: tensor.contiguous() for key, tensor in Lpips().state_dict().items() if key.startswith("features.")}
    save_file(state, tmp_path / "alexnet.safetensors")
    return tmp_path / "alexnet.safetensors"


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (130, 160, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def model(tmp_path):
    size = {"kind": "multiple", "multiple_of": 32, "sides": [64, 96], "fit": "pad", "max_hole_radius": 16}
    return write_model(tmp_path / "models", "tiny", "inpaint", size=size)


def request_of(model, pictures, features, **changed):
    given = {"sizes": (64, 128), "per_cell": 1, "engine": EngineOptions(choice="fake")} | changed
    return SweepRequest(model, pictures, features, **given)


def run(request):
    ticks = iter(range(10**6))
    return sweep(request, lambda rows, _: rows, lambda: float(next(ticks)), date(2026, 1, 2))


def test_all_ways_are_measured_and_become_rules(model, pictures, features):
    found = run(request_of(model, pictures, features))
    assert len(found.rows) == 2 * 12
    assert {"whole", "crops", "crops, radius 48", "strategy=auto"} <= set(found.rows[0].tried)
    assert found.rules.measured == "24 holes in 3 pictures of 64, 128 pixels (pictures), LPIPS AlexNet, 2026-01-02"
    assert {rule.longest_side for rule in found.rules.rules} == {64, 128}
    assert json.loads(json.dumps(found.report))["cells"][0]["pictures"] == 1


def test_ways_that_plan_the_same_share_their_figures(model, pictures, features):
    found = run(request_of(model, pictures, features, sizes=(64,)))
    assert len(found.rows) == 12
    for row in found.rows:
        assert row.tried["whole"].lpips == row.tried["strategy=whole"].lpips
        assert row.tried["whole"].seconds > 0


def test_a_comparison_chooses_no_rules(model, pictures, features):
    found = run(request_of(model, pictures, features, choose=False))
    assert found.rules is None
    assert set(found.rows[0].tried) == {"strategy=whole", "strategy=crop", "strategy=auto"}
    assert found.report["totals"]["all"]["worst_cell"] >= 1


@pytest.mark.parametrize(
    ("content", "sizes", "message"),
    [(b"torn", (64, 128), "9.png: not a picture"), (None, (64, 1000), "none of 3 pictures has 1000 pixels")],
)
def test_pictures_that_stop_a_sweep_do_so_before_anything_is_measured(
    model, pictures, features, content, sizes, message
):
    if content:
        (pictures / "9.png").write_bytes(content)
    with pytest.raises(DataMissing, match=message):
        sweep(request_of(model, pictures, features, sizes=sizes), never, lambda: 0.0, date(2026, 1, 2))


def never(rows, total):
    raise AssertionError("it measures")


def test_a_model_of_one_way_is_refused(tmp_path, pictures, features):
    model = write_model(
        tmp_path / "models", "fixed", "inpaint", size={"kind": "fixed", "height": 32, "width": 32, "fit": "resize"}
    )
    with pytest.raises(SweepImpossible, match="only one strategy"):
        run(request_of(model, pictures, features))


def test_written_rules_leave_the_rest_of_the_manifest_as_it_was(model):
    before = read_manifest(model)
    rules = FillRules(measured="here", rules=(FillRule(longest_side=64, strategy="whole"),))
    (model / "manifest.json").chmod(0o640)
    write_rules(model, rules)
    assert stat.S_IMODE((model / "manifest.json").stat().st_mode) == 0o640
    after = read_manifest(model)
    assert after.size.auto == rules
    assert after.model_copy(update={"size": before.size}) == before
    assert [path.name for path in model.iterdir()] == ["manifest.json"]


def test_a_folder_that_cannot_be_written_is_named(model):
    rules = FillRules(measured="here", rules=(FillRule(strategy="whole"),))
    (model / "manifest.json").rename(model / "manifest")
    with pytest.raises(ModelError, match="manifest"):
        write_rules(model, rules)


def test_the_command_writes_rules_and_figures(model, pictures, features, tmp_path):
    flags = ["--lpips-features", str(features), "--sizes", "64", "--per-cell", "1", "--engine", "fake", "--write"]
    result = CliRunner().invoke(app, ["sweep", str(model), str(pictures), *flags, "--json", str(tmp_path / "out.json")])
    assert result.exit_code == 0, result.output
    assert "wrote the rules" in result.stdout
    assert all(f"strategy={strategy} " in result.stdout for strategy in ("auto", "whole", "crop"))
    assert "engine chosen" in result.stderr  # the log; the figures alone are on standard output
    assert "engine chosen" not in result.stdout
    written = read_manifest(model).size.auto
    assert written.model_dump(mode="json") == json.loads((tmp_path / "out.json").read_text())["rules"]


@pytest.mark.parametrize("place", ["nowhere", ".."])
def test_a_folder_that_is_no_version_of_a_model_is_refused_with_what_to_name(model, pictures, features, place):
    with pytest.raises(SweepImpossible, match=r"is not a model version: name its folder, as in models/photos/5$"):
        run(SweepRequest(model / place, pictures, features))


@pytest.mark.parametrize("place", ["a folder", "/proc/none/figures.json"])
def test_a_file_of_figures_that_cannot_be_written_is_found_before_the_sweep(model, pictures, tmp_path, place):
    (tmp_path / "a folder").mkdir()
    flags = ["--lpips-features", str(tmp_path / "none"), "--json", str(tmp_path / place)]
    result = CliRunner().invoke(app, ["sweep", str(model), str(pictures), *flags])
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert "cannot be written" in result.output
    assert place in result.output


@pytest.mark.parametrize("flags", [["--sizes", "big"], ["--sizes", "8"], ["--compare", "--write"]])
def test_the_command_refuses_what_cannot_be(model, pictures, features, flags):
    result = CliRunner().invoke(
        app, ["sweep", str(model), str(pictures), "--lpips-features", str(features), *flags], env={"COLUMNS": "200"}
    )
    assert result.exit_code == 2
