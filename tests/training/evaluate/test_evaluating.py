import json
import math

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from export.generators.pconv import PConv, PConvOptions
from export.generators.pix2pix import Pix2Pix, Pix2PixOptions
from export.pipeline import ExportRequest, export_model
from training.__main__ import app
from training.evaluate.perceptual import Lpips


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two untrained models, exported."""
    root = tmp_path_factory.mktemp("models")
    generator = torch.Generator().manual_seed(0)
    nets = {
        "holes": PConv().build(PConvOptions(levels=2, width=4)),
        "pairs": Pix2Pix().build(Pix2PixOptions(net="unet_128", ngf=2)),
    }
    _pictures(root / "pictures", 2)
    for name, net in nets.items():
        for key, tensor in net.state_dict().items():
            if key.endswith("mask_conv.weight"):
                tensor.fill_(1)
            elif tensor.ndim > 1:
                tensor.copy_(torch.randn(tensor.shape, generator=generator) / math.sqrt(tensor[0].numel()))
        torch.save(net.state_dict(), root / f"{name}.pth")
        export_model(ExportRequest((root / f"{name}.pth",), name, root / "pictures", output=root), lambda _step: None)
    return root


def _pictures(folder, count, size=(150, 150)):
    folder.mkdir()
    for index in range(count):
        noise = np.random.default_rng(index).uniform(0, 255, (6, 6, 3)).astype(np.float32)
        pixels = np.clip(cv2.resize(noise, size, interpolation=cv2.INTER_CUBIC), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")


def _evaluate(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments), "--engine", "onnxrt"])


def test_command_measures_an_exported_model_beside_opencv(models, feature_net, tmp_path):
    _pictures(tmp_path / "data", 5)
    torch.manual_seed(0)
    state = {key: value for key, value in Lpips().state_dict().items() if key.startswith("features.")}
    save_file(state, tmp_path / "alexnet.safetensors")
    done = _evaluate(
        *(models / "holes/1", "--data", tmp_path / "data", "--size", 128, "--coverage", "0.1-0.3"),
        *("--lpips-features", tmp_path / "alexnet.safetensors", "--fid-features", feature_net),
        *("--json", tmp_path / "out/report.json", "--sheet", tmp_path / "out/sheet.png", "--sheet-rows", 2),
    )
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["model"] | {"onnx_sha256": ""} == {
        "name": "holes/1",
        "onnx_sha256": "",
        "graph": "fp16",
        "engine": "onnxrt",
        "precision": "fp16",
    }
    figures = report["figures"]
    assert list(figures) == ["model", "telea", "ns"]
    assert {band: row["pictures"] for band, row in figures["telea"].items()} == {"all": 5, "10-20 %": 3, "20-30 %": 2}
    for painter in figures.values():
        assert set(painter["all"]) == {"pictures", "psnr_db", "ssim", "l1", "lpips", "fid"}
        assert all(math.isfinite(value) for value in painter["all"].values())
    # the pictures are smooth: what continues them is far nearer than an untrained net
    assert figures["telea"]["all"]["psnr_db"] > figures["model"]["all"]["psnr_db"] + 3
    assert report["gains"]["telea"]["lpips_ratio"] > 1
    assert [0.1 <= picture["coverage"] <= 0.3 for picture in report["pictures"]] == [True] * 5
    assert "model against telea: PSNR -" in done.stdout
    with Image.open(tmp_path / "out/sheet.png") as sheet:
        assert sheet.size == (5 * 132 - 4, 16 + 2 * 132)


def test_command_measures_a_translation_on_pairs(models, tmp_path):
    _pictures(tmp_path / "data", 3, size=(256, 128))
    done = _evaluate(models / "pairs/1", "--data", tmp_path / "data", "--pairs", "BtoA", "--json", tmp_path / "r.json")
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "r.json").read_text())
    assert list(report["figures"]) == ["model"]
    assert report["figures"]["model"]["all"]["pictures"] == 3
    assert 3 < report["figures"]["model"]["all"]["psnr_db"] < 30


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["pairs/1"], 2, "pairs/1 is for translate", id="another task"),
        pytest.param(["holes/2"], 1, "no such model", id="no model"),
        pytest.param(["holes/1", "--coverage", "0.5"], 2, "write LOW-HIGH", id="coverage"),
        pytest.param(["holes/1", "--coverage", "0.5-0.2"], 2, "the smaller first", id="coverage the wrong way"),
        pytest.param(["holes/1", "--baselines", "telea,best"], 2, "known are telea, ns", id="baseline"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(models, arguments, code, message):
    model, *flags = arguments
    done = _evaluate(models / model, "--data", models / "pictures", *flags)
    assert done.exit_code == code
    assert message in " ".join(done.stderr.replace("│", " ").split())
