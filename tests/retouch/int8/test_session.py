"""A tiny net from checkpoint to a served INT8 model, and the reasons to stop before and after the calibration."""

from __future__ import annotations

from dataclasses import replace

import httpx
import numpy as np
import pytest
import torch
import typer
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from engines.errors import RetouchError
from engines.manifest import read_manifest
from export.errors import CalibrationInvalid, OptionInvalid, QuantisationRefused
from export.generators.dcgan import DCGAN, DCGANOptions
from export.generators.fillnet.generator import FillNet
from export.generators.fillnet.options import FillNetOptions
from export.int8.calibrating import calibrate
from export.pipeline import ExportRequest, add_program, export_model
from retouch.commands.export import export
from retouch.commands.publishing import SAMPLE_PICTURES
from retouch.int8.session import prepare
from tests.export.conftest import randomised
from tests.serving.served_process import ServedProcess
from tests.serving.waiting import wait_until
from training.errors import DataMissing
from training.losses.lpips_distance import Lpips

pytestmark = pytest.mark.slow
SMALL = FillNetOptions(widths="8,6", encoder="1,0", decoder="0,1")


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """Write a checkpoint, 132 pictures and LPIPS features; returns their folder."""
    folder = tmp_path_factory.mktemp("material")
    torch.save(randomised(FillNet().build(SMALL), 1).state_dict(), folder / "net.pth")
    torch.save(randomised(DCGAN().build(DCGANOptions(ngf=2, nz=4)), 1).state_dict(), folder / "dcgan.pth")
    torch.manual_seed(0)
    state = {key: tensor.contiguous() for key, tensor in Lpips().state_dict().items() if key.startswith("features.")}
    save_file(state, folder / "alexnet.safetensors")
    (folder / "pictures").mkdir()
    for number in range(132):
        rough = np.random.default_rng(number).integers(0, 256, (9, 9, 3), np.uint8)
        Image.fromarray(rough).resize((70, 64)).save(folder / f"pictures/{number:03}.png")
    return folder


@pytest.fixture(scope="module")
def exported(material, tmp_path_factory):
    """Export the net with the command; returns the result and the model's folder, which tests must not change."""
    folder = tmp_path_factory.mktemp("exported")
    result = run(material, "--output", folder / "models", *int8(material), "--sheet", folder / "sheet.png")
    assert result.exit_code == 0, result.output
    return result, folder


def int8(material):
    return (
        *("--precision", "int8", "--calibration", material / "pictures"),
        *("--lpips-features", material / "alexnet.safetensors"),
    )


def run(material, *arguments):
    app = typer.Typer()
    app.command()(export)
    call = [material / "net.pth", "--name", "tiny", *arguments]
    return CliRunner().invoke(app, [str(argument) for argument in call])


def test_the_manifest_tells_how_the_model_was_made_and_how_good_it_is(exported):
    result, folder = exported
    manifest = read_manifest(folder / "models/tiny/1")
    made = manifest.quantisation
    assert (manifest.precision, made.calibration, made.pictures, made.seed) == ("int8", "pictures", 32, 0)
    assert made.int8_layers > 0
    assert (made.gate.pictures, made.gate.engine) == (100, "openvino int8")
    assert made.gate.psnr_db >= 35
    assert made.gate.worst_psnr_db >= 28
    assert "## INT8" in (folder / "models/tiny/1/card.md").read_text("utf-8")
    for step in ("calibrating on 32 pictures", "layer 1 of ", "layers kept", "gate, picture 100"):
        assert step in result.output


def test_the_sheet_shows_hole_fp32_int8_and_difference(exported):
    with Image.open(exported[1] / "sheet.png") as sheet:
        assert sheet.size == (4 * 64, 12 * 68)
        pixels = np.asarray(sheet)
    assert not np.array_equal(pixels[:64, 64:128], pixels[:64, :64])  # the hole is filled


def test_nothing_but_the_version_is_left_behind(exported):
    found = {path.name for path in (exported[1] / "models").rglob("*")}
    assert found == {"tiny", "1", "model.onnx", "manifest.json", "card.md"}


def test_it_is_served_and_the_headers_and_metrics_say_int8(exported, tmp_path):
    settings = {"models_dir": exported[1] / "models", "engine": "openvino", "inpaint_model": "tiny"}
    with ServedProcess(tmp_path, **settings) as served:
        names = {"image": "dress.jpg", "mask": "dress_mask.png"}
        files = {part: (SAMPLE_PICTURES / name).read_bytes() for part, name in names.items()}
        reply = httpx.post(f"{served.url}/v1/inpaint", files=files, timeout=60)
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-engine"] == "openvino/int8"
        metrics = httpx.get(f"{served.url}/metrics", timeout=60).text
        assert 'retouch_model_engine{engine="openvino",model="tiny/1",precision="int8"} 1.0' in metrics


def test_a_setting_forbids_it_and_the_reason_is_reported(exported, tmp_path):
    settings = {
        "models_dir": exported[1] / "models",
        "engine": "openvino",
        "inpaint_model": "tiny",
        "allow_int8": False,
    }
    served = ServedProcess(tmp_path, **settings).start(ready=False)
    try:
        wait_until(lambda: "forbids" in httpx.get(f"{served.url}/v1/models", timeout=60).text)
        assert httpx.get(f"{served.url}/readyz", timeout=60).status_code == 503
    finally:
        served.kill()


def test_it_gets_no_program(exported, material):
    with pytest.raises(OptionInvalid, match="INT8, which has no program"):
        add_program(exported[1] / "models/tiny/1", (material / "net.pth",), SAMPLE_PICTURES, lambda step: None)


def request_of(material, tmp_path, **changed):
    quantiser = prepare(material / "pictures", material / "alexnet.safetensors")
    request = ExportRequest((material / "net.pth",), "tiny", SAMPLE_PICTURES, output=tmp_path / "models")
    return replace(request, precision="int8", quantiser=quantiser, **changed)


def test_a_bad_quantisation_is_refused_and_nothing_is_published(material, tmp_path):
    def cut(*arguments):
        return {name: replace(scale, limit=scale.limit / 500) for name, scale in calibrate(*arguments).items()}

    request = request_of(material, tmp_path)
    request = replace(request, quantiser=replace(request.quantiser, calibrate=cut))
    with pytest.raises(QuantisationRefused, match=r"What costs most: .*/Conv \(.*--precision fp16"):
        export_model(request, lambda step: None)
    assert list((tmp_path / "models").iterdir()) == []


def test_other_tasks_and_programs_are_refused_before_the_calibration(material, tmp_path):
    steps: list[str] = []
    with pytest.raises(OptionInvalid, match="task is generate"):
        export_model(request_of(material, tmp_path, checkpoints=(material / "dcgan.pth",)), steps.append)
    assert steps == ["reading the checkpoint"]
    with pytest.raises(OptionInvalid, match="no INT8 program"):
        export_model(request_of(material, tmp_path, program=True), steps.append)
    with pytest.raises(OptionInvalid, match="belong together"):
        export_model(replace(request_of(material, tmp_path), quantiser=None), steps.append)


def test_what_is_missing_is_found_before_anything_is_computed(material, tmp_path):
    with pytest.raises(OptionInvalid, match="--lpips-features"):
        prepare(material / "pictures", None)
    with pytest.raises(DataMissing):
        prepare(material / "pictures", tmp_path / "none.safetensors")
    with pytest.raises(CalibrationInvalid, match="no such folder"):
        prepare(tmp_path / "none", material / "alexnet.safetensors")
    with pytest.raises(OptionInvalid, match=r"--sheet .* \.png"):
        prepare(material / "pictures", material / "alexnet.safetensors", tmp_path / "none" / "sheet.png")
    (tmp_path / "sheet.png").mkdir()
    with pytest.raises(IsADirectoryError):
        prepare(material / "pictures", material / "alexnet.safetensors", tmp_path / "sheet.png")


def test_the_command_requires_both_flags_or_neither(material, tmp_path):
    for flags in (("--precision", "int8"), ("--calibration", material / "pictures")):
        result = run(material, "--output", tmp_path / "models", *flags)
        assert result.exit_code == 2
        assert "belong together" in result.output
    result = run(material, "--output", tmp_path / "models", "--precision", "int8", "--calibration", tmp_path / "none")
    assert isinstance(result.exception, RetouchError)
    assert not (tmp_path / "models").exists()
