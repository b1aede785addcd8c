from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import typer
from PIL import Image
from pydantic import TypeAdapter
from safetensors.torch import save_file
from typer.testing import CliRunner

from engines.errors import RetouchError
from engines.manifest import ModelName
from export.errors import OptionInvalid
from export.generators.dcgan import DCGAN, DCGANOptions
from export.generators.pconv.unet import PConv, PConvOptions
from export.generators.pix2pix import Pix2Pix, Pix2PixOptions
from retouch.commands.export import export
from retouch.commands.publishing import SAMPLE_PICTURES, model_name_from_file
from training.errors import DataMissing
from training.losses.lpips_distance import Lpips


@pytest.fixture
def run(tmp_path, make_net):
    return runner(tmp_path, make_net(PConv(), PConvOptions(levels=2, width=2)))


@pytest.fixture
def run_smallest(tmp_path, make_net):
    """Run the command on the family whose program is written fastest."""
    return runner(tmp_path, make_net(DCGAN(), DCGANOptions(ngf=2, nz=4)))


def runner(tmp_path, net):
    torch.save(net.state_dict(), tmp_path / "net.pth")
    app = typer.Typer()
    app.command()(export)

    def invoke(*arguments):
        call = [str(tmp_path / "net.pth"), "--name", "tiny", "--output", str(tmp_path / "models"), *arguments]
        return CliRunner().invoke(app, call)

    return invoke


def test_command_publishes_a_model_and_prints_the_parity_table(run, tmp_path):
    result = run("--generator", "pconv", "--option", "levels=2", "--option", "width=2")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "models/tiny/1/manifest.json").is_file()
    for part in ("tiny/1: parity with torch FP32", "onnx-fp16", "full mask", "published", "comparing"):
        assert part in result.output


def test_the_table_names_the_bars_that_the_published_graph_had_to_reach(run_smallest):
    full = "FP32 graph at least 80 dB, largest difference at most 0.0001"
    printed = {precision: run_smallest("--precision", precision).stdout for precision in ("fp32", "fp16")}
    words = {precision: " ".join(text.split()) for precision, text in printed.items()}
    assert f"bar: {full} " in words["fp32"]
    assert "45 dB" not in words["fp32"]
    assert f"bars: {full}; FP16 graph at least 45 dB" in words["fp16"]


def test_model_goes_to_the_repository_of_the_environment_unless_a_flag_names_one(tmp_path, make_net):
    torch.save(make_net(DCGAN(), DCGANOptions(ngf=2, nz=4)).state_dict(), tmp_path / "net.pth")
    app = typer.Typer()
    app.command()(export)
    call = [str(tmp_path / "net.pth"), "--name", "tiny", "--precision", "fp32"]
    environ = {"RETOUCH_MODELS_DIR": str(tmp_path / "everybodys")}
    assert CliRunner().invoke(app, call, env=environ).exit_code == 0
    assert CliRunner().invoke(app, [*call, "--output", str(tmp_path / "mine")], env=environ).exit_code == 0
    assert (tmp_path / "everybodys/tiny/1/manifest.json").is_file()
    assert (tmp_path / "mine/tiny/1/manifest.json").is_file()


def test_command_prints_the_manifest_as_json(run):
    result = run("--json", "--precision", "fp32", "--max-batch", "5")
    manifest = json.loads(result.stdout)
    assert (manifest["name"], manifest["precision"], manifest["max_batch"]) == ("tiny", "fp32", 5)


def test_program_is_written_beside_the_graph_when_asked_for(run_smallest, tmp_path):
    assert run_smallest("--precision", "fp32", "--program").exit_code == 0
    assert (tmp_path / "models/tiny/1/program.pt2").is_file()


def test_program_is_added_to_a_model_exported_elsewhere(tmp_path, run_smallest):
    assert run_smallest("--json").exit_code == 0
    result = run_program_only(tmp_path)
    assert result.exit_code == 0, result.output
    assert "program-fp16" in result.output
    assert (tmp_path / "models/tiny/1/program.pt2").is_file()
    assert not (tmp_path / "models/tiny/2").exists()
    printed = json.loads(run_program_only(tmp_path, "--json").stdout)
    assert printed["program"] == str(tmp_path / "models/tiny/1/program.pt2")
    assert {case["backend"] for case in printed["cases"]} == {"program-fp16"}


def run_program_only(tmp_path, *arguments):
    app = typer.Typer()
    app.command()(export)
    call = [str(tmp_path / "net.pth"), "--program-only", str(tmp_path / "models/tiny/1"), *arguments]
    return CliRunner().invoke(app, call, env={"COLUMNS": "300"})


def test_a_flag_that_a_program_alone_would_not_follow_is_refused(tmp_path, run_smallest):
    assert run_smallest("--json").exit_code == 0
    result = run_program_only(tmp_path, "--name", "other", "--precision", "fp16", "--option", "nz=4")
    assert result.exit_code == 2
    assert "leave out --option, --precision, --name" in result.output
    assert not (tmp_path / "models/tiny/1/program.pt2").exists()


@pytest.mark.parametrize(
    ("flag", "advice"),
    [("--sheet", "needs --precision int8"), ("--lpips-features", "is for --sweep and --precision int8")],
)
def test_a_flag_that_no_other_one_makes_use_of_is_refused(run, tmp_path, flag, advice):
    result = run(flag, str(tmp_path / "file.png"))
    assert result.exit_code == 2
    assert advice in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "models").exists()


def test_a_model_without_a_name_is_called_after_its_file(tmp_path, make_net):
    torch.save(make_net(DCGAN(), DCGANOptions(ngf=2, nz=4)).state_dict(), tmp_path / "Latest net_G.pth")
    app = typer.Typer()
    app.command()(export)
    call = [str(tmp_path / "Latest net_G.pth"), "--output", str(tmp_path / "models"), "--json"]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    assert "the model is called latest-net_g, after Latest net_G.pth; --name calls it otherwise" in result.stderr
    assert json.loads(result.stdout)["name"] == "latest-net_g"
    assert (tmp_path / "models/latest-net_g/1/manifest.json").is_file()
    (tmp_path / "Latest net_G.pth").write_bytes(b"no checkpoint: what is said comes before it is read")
    again = CliRunner().invoke(app, call).stderr
    assert f"it becomes the next version of {tmp_path / 'models/latest-net_g'}" in again


def test_a_file_that_is_not_there_is_named_before_anything_else(tmp_path):
    app = typer.Typer()
    app.command()(export)
    result = CliRunner().invoke(app, [str(tmp_path / "nowhere.pth")], env={"COLUMNS": "300"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert "nowhere.pth' does not exist" in result.stderr
    assert "is called" not in result.stderr


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("x.pth", "x"),
        ("Größe (2).pth.tar", "groe-2"),
        ("edges2shoes_v1.5.safetensors", "edges2shoes_v1-5"),
        ("__G__.PT", "g"),
        ("big-lama.zip", "big-lama"),
        ("net-00001-of-00002.safetensors", "net"),
        ("net.safetensors.index.json", "net"),
        ("-rf.pt", "rf"),
        ("a" * 80 + ".pth", "a" * 64),
        ("a" * 63 + "--b.pth", "a" * 63),
    ],
)
def test_a_name_made_of_a_files_is_valid(file, name):
    assert model_name_from_file(Path("somewhere") / file) == name
    assert TypeAdapter(ModelName).validate_python(name) == name


def test_a_file_of_whose_name_none_can_be_made_needs_one(tmp_path):
    with pytest.raises(typer.BadParameter, match="give one with --name"):
        model_name_from_file(tmp_path / "図.pth")


def test_a_name_that_no_model_can_have_is_a_wrong_flag(run_smallest):
    result = run_smallest("--name", "my facades")
    assert isinstance(result.exception, OptionInvalid)
    assert (str(result.exception), result.exception.exit_status) == (
        "--name 'my facades': lower-case letters, digits, - and _ only, at most 64",
        2,
    )


def test_unknown_options_end_with_the_known_ones(run):
    result = run("--option", "deep=3")
    assert isinstance(result.exception, OptionInvalid)
    assert "known options are levels, width" in str(result.exception)


def test_batch_norm_is_an_option_of_the_families_that_have_it(run, tmp_path, make_net):
    assert "unknown option batch_norm of pconv" in str(run("--batch-norm", "eval").exception)
    state = make_net(Pix2Pix(), Pix2PixOptions(net="unet_128", ngf=1)).state_dict()
    torch.save(state, tmp_path / "net.pth")
    result = run("--batch-norm", "batch-statistics", "--json", "--precision", "fp32")
    assert json.loads(result.stdout)["options"]["batch_norm"] == "batch-statistics"


@pytest.mark.parametrize("pair", ["levels", "=3", ""])
def test_options_without_key_or_value_sign_are_usage_errors(run, pair):
    result = run("--option", pair)
    assert result.exit_code == 2
    assert "write KEY=VALUE" in result.output


def test_missing_export_packages_are_named(monkeypatch, run):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run()
    assert isinstance(result.exception, RetouchError)
    assert str(result.exception) == "export needs torch and onnx: make install-export"


def test_sample_pictures_of_a_checkout_are_the_default(pictures_dir):
    assert pictures_dir == SAMPLE_PICTURES


def test_a_sweep_needs_the_features_that_it_measures_by(tmp_path, run):
    result = run("--sweep", str(tmp_path))
    assert result.exit_code == 2
    assert "--lpips-features" in result.output
    assert not (tmp_path / "models").exists()


def test_a_sweep_that_cannot_begin_ends_the_command_before_the_export(tmp_path, run):
    alexnet = alexnet_features(tmp_path)
    without_pictures = run("--sweep", str(tmp_path / "nowhere"), "--lpips-features", str(alexnet))
    assert "no pictures" in str(without_pictures.exception)
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (300, 300)).save(tmp_path / "pictures/a.png")
    without_features = run("--sweep", str(tmp_path / "pictures"), "--lpips-features", str(tmp_path / "net.pth"))
    assert "not AlexNet's features" in str(without_features.exception)
    assert not (tmp_path / "models").exists()


def test_a_sweep_over_a_net_with_one_way_to_work_is_refused_before_the_export(tmp_path, run_smallest):
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (300, 300)).save(tmp_path / "pictures/a.png")
    result = run_smallest("--sweep", str(tmp_path / "pictures"), "--lpips-features", str(alexnet_features(tmp_path)))
    assert "this net (generate) has only one strategy: there is nothing to sweep" in str(result.exception)
    assert "writing" not in result.output
    assert not list((tmp_path / "models").iterdir())


def alexnet_features(tmp_path):
    state = {key: tensor for key, tensor in Lpips().state_dict().items() if key.startswith("features.")}
    save_file(state, tmp_path / "alexnet.safetensors")
    return tmp_path / "alexnet.safetensors"


def test_a_sweep_over_pictures_that_are_too_small_is_refused_before_the_export(tmp_path, run):
    alexnet = alexnet_features(tmp_path)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    Image.new("RGB", (40, 40)).save(pictures / "small.png")
    result = run("--sweep", str(pictures), "--lpips-features", str(alexnet))
    assert isinstance(result.exception, DataMissing)
    assert "none of 1 pictures has 256 pixels" in str(result.exception)
    assert "writing" not in result.output
    assert not list((tmp_path / "models").iterdir())
