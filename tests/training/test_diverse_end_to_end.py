"""PD-GAN end to end: overfit both stages on one picture, export, serve several fills, and evaluate."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from export.pipeline import ExportRequest, export_model
from tests.serving.served_process import ServedProcess
from training.__main__ import app

pytestmark = pytest.mark.slow

Pixels = NDArray[np.uint8]


BY_HEART = {"batch": 1, "learning_rate": 1e-2, "warm_up": 5}
WEIGHTS = {"l1": 10.0, "adversarial": 0.01, "matching": 0.1, "diversity": 1e-4}
QUIET = {"ema_decay": 0.9, "log_every": 20, "checkpoint_every": 1000, "sheet_every": 1000, "sheet_pictures": 1}


def command(*arguments: object) -> None:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output


def psnr_db(found: Pixels, wanted: Pixels) -> float:
    return float(10 * np.log10(255**2 / np.square(found.astype(float) - wanted).mean()))


def served_fills(folder: Path, truth: Pixels) -> list[Pixels]:
    """Serve the folder's model; returns two fills of one hole."""
    hole = np.zeros((256, 256), np.uint8)
    hole[80:150, 90:170] = 255
    files = {
        name: (f"{name}.png", cv2.imencode(".png", pixels)[1].tobytes())
        for name, pixels in (("image", np.where(hole[..., None] > 0, 255, truth)), ("mask", hole))
    }
    options = {"model": "diverse", "format": "png", "samples": "2", "seed": "1"}
    process = ServedProcess(folder, models_dir=folder / "models", engine="onnxrt").start()
    try:
        reply = httpx.post(f"{process.url}/v1/inpaint", files=files, data=options, timeout=60)
    finally:
        process.kill()
    assert reply.status_code == 200, reply.text
    encoded = [np.frombuffer(base64.b64decode(each["image_base64"]), np.uint8) for each in reply.json()["images"]]
    return [np.asarray(cv2.imdecode(each, cv2.IMREAD_COLOR), np.uint8) for each in encoded]


FILL = {"fill_widths": "32,32,32", "fill_encoder": "0,1,1", "fill_decoder": "0,1,1", "fill_context": "0,0,1"}


@pytest.mark.parametrize(
    "form",
    [({"prior_width": 4}, 24, 30), (FILL, 12, 33)],  # one step of each stage on FillNet leaves 30.0 dB
    ids=["partial convolutions", "FillNet with attention"],
)
def test_pd_gan_learns_a_picture_by_heart_and_serves_different_fills_of_it(
    form: tuple[dict[str, Any], int, float],
    tmp_path: Path,
    photographs: Path,
    pdgan_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
) -> None:
    stage_1, diverse_steps, bar_db = form
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    small = cv2.resize(cv2.imread(str(photographs / "crocs.jpg")), (32, 32), interpolation=cv2.INTER_AREA)
    truth = np.asarray(cv2.resize(small, (256, 256), interpolation=cv2.INTER_CUBIC), np.uint8)
    cv2.imwrite(str(pictures / "1.png"), truth)
    places = {"path": str(pictures), "validation": str(pictures)}
    phases = [{"part": "prior", "steps": 50}, {"part": "diverse", "steps": diverse_steps, **WEIGHTS}]
    given = pdgan_run(
        **QUIET,
        generator={**stage_1, "ngf": 2, "z_dim": 4},
        data={**places, "load_side": 256, "crop": 256, "flip": False, "threads": 1},
        phase=[phase | BY_HEART for phase in phases],
    )
    command("fit", write_config(given, tmp_path / "run.toml"), "--device", "cpu")
    last = json.loads((tmp_path / "run/log.jsonl").read_text().splitlines()[-1])
    assert last["validation_psnr_db"] > bar_db
    weights = tmp_path / "run/generator.pth"
    request = ExportRequest((weights,), "diverse", pictures, options={}, output=tmp_path / "models")
    model = export_model(request, lambda _step: None).directory
    assert json.loads((model / "manifest.json").read_text())["generator"] == "pdgan"
    first, second = served_fills(tmp_path, truth)
    assert not np.array_equal(first, second)
    assert min(psnr_db(first, truth), psnr_db(second, truth)) > 23  # a box, thicker than the holes of validation
    command("evaluate", model, "--data", pictures, "--engine", "onnxrt", "--json", tmp_path / "report.json")
    figures = json.loads((tmp_path / "report.json").read_text())["figures"]
    assert figures["model"]["all"]["psnr_db"] > 18  # strokes over up to half of the picture
