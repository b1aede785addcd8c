"""Training end to end: overfit a net on one picture, export, serve and evaluate it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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
from tests.serving.waiting import wait_until
from tests.training.whole_runs import save_untrained_vgg16
from training.__main__ import app
from training.data.label_maps import FACADE_COLOURS, facade_labels

pytestmark = pytest.mark.slow

QUIET = {"log_every": 50, "checkpoint_every": 1000, "sheet_every": 1000, "ema_decay": 0.9}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, photographs: Path) -> Path:
    """Make eight copies of a small picture, a pair with its edges, and a repository of models trained on them."""
    root = tmp_path_factory.mktemp("trained")
    photograph = cv2.imread(str(photographs / "crocs.jpg"))
    edges = cv2.cvtColor(cv2.Canny(cv2.resize(photograph, (128, 128)), 60, 120), cv2.COLOR_GRAY2BGR)
    (root / "pictures").mkdir()
    (root / "pairs").mkdir()
    small = cv2.resize(photograph, (32, 32), interpolation=cv2.INTER_AREA)
    for number in range(8):
        cv2.imwrite(str(root / "pictures" / f"{number}.png"), small)
    target = cv2.resize(photograph, (128, 128), interpolation=cv2.INTER_AREA)
    cv2.imwrite(str(root / "pairs" / "1.png"), np.concatenate([target, edges], 1))
    return root


def command(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def trained(
    given: dict[str, Any], folder: Path, name: str, write: Callable[[dict[str, Any], Path], Path], **options: str
) -> Path:
    """Train and export a model; returns its folder."""
    config = write(given | {"output": str(folder / name)}, folder / f"{name}.toml")
    assert "finished" in command("fit", config, "--device", "cpu")
    last = json.loads((folder / name / "log.jsonl").read_text().splitlines()[-1])
    assert last["validation_psnr_db"] > 30
    request = ExportRequest(
        (folder / name / "generator.pth",), name, folder / "pictures", options=options, output=folder / "models"
    )
    return export_model(request, lambda _step: None).directory


def figures(model: Path, data: Path, report: Path, *flags: object) -> dict[str, float]:
    """Return the PSNR of each painter by name."""
    command("evaluate", model, "--data", data, "--engine", "onnxrt", "--json", report, *flags)
    return {name: row["all"]["psnr_db"] for name, row in json.loads(report.read_text())["figures"].items()}


def decoded(reply: httpx.Response) -> NDArray[np.uint8]:
    return np.asarray(cv2.imdecode(np.frombuffer(reply.content, np.uint8), cv2.IMREAD_COLOR), np.uint8)


def psnr_db(found: NDArray[np.uint8], wanted: NDArray[np.uint8]) -> float:
    return float(10 * np.log10(255**2 / np.square(found.astype(float) - wanted).mean()))


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServedProcess]:
    """A server that loads each model when it is exported; each test requests its own."""
    (folder / "models").mkdir()
    process = ServedProcess(folder, models_dir=folder / "models", engine="onnxrt", model_poll_s=0.1).start(ready=False)
    yield process
    process.kill()


def asked(server: ServedProcess, route: str, files: dict[str, Any], **fields: str) -> httpx.Response:
    """Send a request to a model as soon as the server has loaded it."""

    def is_ready() -> bool:
        listed = httpx.get(f"{server.url}/v1/models").json()["models"]
        return (fields["model"], "ready") in {(model["name"], model["state"]) for model in listed}

    wait_until(is_ready, 120)
    reply = httpx.post(f"{server.url}/v1/{route}", files=files, data={"format": "png", **fields}, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply


def test_partial_convolution_learns_a_picture_by_heart_and_serves_it(
    folder: Path,
    partial_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
    server: ServedProcess,
) -> None:
    pictures = str(folder / "pictures")
    given = partial_run(
        **QUIET,
        generator={"levels": 3, "width": 24},
        data={"path": pictures, "validation": pictures, "load_side": 32, "crop": 32, "flip": False},
        masks={"coverage": [0.1, 0.5]},
        phase=[{"steps": 250, "batch": 4, "learning_rate": 1e-2, "warm_up": 10, "log_mse": 0.2}],
    )
    model = trained(given, folder, "byheart", write_config)
    found = figures(model, folder / "pictures", folder / "holes.json", "--size", 32, "--baselines", "telea")
    assert found["model"] > found["telea"] + 3
    truth = cv2.imread(str(folder / "pictures" / "1.png"))
    hole = np.zeros((32, 32), np.uint8)
    hole[8:20, 10:22] = 255
    torn = np.where(hole[..., None] > 0, 255, truth).astype(np.uint8)
    files = {
        name: (f"{name}.png", cv2.imencode(".png", pixels)[1].tobytes())
        for name, pixels in (("image", torn), ("mask", hole))
    }
    reply = asked(server, "inpaint", files, model="byheart")
    continued = np.asarray(cv2.inpaint(torn, hole, 3, cv2.INPAINT_TELEA))
    assert psnr_db(decoded(reply), truth) > psnr_db(continued, truth) + 3


def test_fillnet_learns_a_picture_by_heart_against_its_judge(
    folder: Path,
    fill_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
) -> None:
    pictures = str(folder / "pictures")
    given = fill_run(
        **QUIET,
        generator={"widths": "32,32", "encoder": "1,1", "decoder": "0,1", "context": "0,2"},
        shares={"difference": 1.0, "perceptual": 0.0, "adversarial": 0.1, "matching": 0.1},
        judge={"widths": [8, 8, 8, 8, 8, 8], "ramp": [50, 100]},
        coverage=[0.1, 0.5],
        data={"path": pictures, "validation": pictures, "load_side": 32, "crop": 32, "flip": False},
        phase=[{"steps": 400, "batch": 8, "learning_rate": 1.5e-2, "warm_up": 10, "hold": 0.3}],
    )
    model = trained(given, folder, "filledbyheart", write_config)
    found = figures(model, folder / "pictures", folder / "filled.json", "--size", 32, "--baselines", "telea")
    assert found["model"] > found["telea"] + 3


def test_pix2pix_learns_a_pair_by_heart_and_serves_it(
    folder: Path,
    pix2pix_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
    server: ServedProcess,
) -> None:
    pairs = str(folder / "pairs")
    data = {"path": pairs, "validation": pairs, "layout": "pairs", "direction": "BtoA", "load_side": 128, "crop": 128}
    given = pix2pix_run(
        **QUIET,
        generator={"net": "unet_128", "ngf": 8, "dropout": False},
        data=data | {"flip": False},
        phase=[{"steps": 350, "batch": 1, "learning_rate": 4e-3, "warm_up": 10}],
    )
    model = trained(given, folder, "pairbyheart", write_config)
    found = figures(model, folder / "pairs", folder / "pairs.json", "--pairs", "BtoA")
    assert found["model"] > 30
    pair = cv2.imread(str(folder / "pairs" / "1.png"))
    files = {"image": ("edges.png", cv2.imencode(".png", pair[:, 128:])[1].tobytes())}
    reply = asked(server, "translate", files, model="pairbyheart")
    assert psnr_db(decoded(reply), pair[:, :128]) > 30


def test_pgn_learns_the_middle_of_a_picture_by_heart_and_serves_it(
    folder: Path,
    pgn_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
    server: ServedProcess,
) -> None:
    photograph = cv2.resize(cv2.imread(str(folder / "pairs" / "1.png"))[:, :128], (132, 132))
    (folder / "middle").mkdir()
    cv2.imwrite(str(folder / "middle" / "1.png"), photograph)
    middle = str(folder / "middle")
    given = pgn_run(
        **QUIET,
        generator={"stages": 2, "width": 8},
        discriminator_width=2,
        data={"path": middle, "validation": middle, "load_side": 132, "crop": 128, "flip": False},
        phase=[{"steps": 120, "batch": 2, "learning_rate": 1e-2, "warm_up": 10, "total_variation": 0.1}],
    )
    model = trained(given, folder, "middlebyheart", write_config)
    assert json.loads((model / "manifest.json").read_text())["generator"] == "pgn"
    truth, hole = photograph[2:130, 2:130], np.zeros((128, 128), np.uint8)
    hole[32:96, 32:96] = 255
    torn = np.where(hole[..., None] > 0, 255, truth).astype(np.uint8)
    files = {
        name: (f"{name}.png", cv2.imencode(".png", pixels)[1].tobytes())
        for name, pixels in (("image", torn), ("mask", hole))
    }
    (folder / "holes").mkdir()
    cv2.imwrite(str(folder / "holes" / "1.png"), hole)
    (folder / "cut").mkdir()
    cv2.imwrite(str(folder / "cut" / "1.png"), truth)
    chosen = ("--size", 128, "--masks", folder / "holes", "--baselines", "telea")
    found = figures(model, folder / "cut", folder / "middle.json", *chosen)
    assert found["model"] > found["telea"] + 3
    reply = asked(server, "inpaint", files, model="middlebyheart")
    continued = np.asarray(cv2.inpaint(torn, hole, 3, cv2.INPAINT_TELEA))
    assert psnr_db(decoded(reply), truth) > psnr_db(continued, truth) + 3


def test_pix2pixhd_learns_a_facade_by_heart_and_serves_it(
    folder: Path,
    pix2pixhd_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
    server: ServedProcess,
) -> None:
    truth = cv2.resize(cv2.imread(str(folder / "pairs" / "1.png"))[:, :128], (64, 64), interpolation=cv2.INTER_AREA)
    labels = np.full((64, 64), 2, np.uint8)
    labels[:10], labels[20:34, 8:24], labels[20:34, 40:56], labels[44:, 26:40] = 1, 3, 3, 4
    colours = np.array(list(FACADE_COLOURS.values()), np.uint8)[labels - 1, ::-1]
    facades = folder / "facades"
    facades.mkdir()
    cv2.imwrite(str(facades / "1.png"), np.concatenate([truth, colours], 1))
    data = {"path": str(facades), "validation": str(facades), "layout": "facades", "direction": "BtoA"}
    given = pix2pixhd_run(
        **QUIET,
        generator={"label_nc": 13, "ngf": 16, "downsamplings": 2, "blocks": 2},
        data=data | {"load_side": 64, "crop": 64, "flip": False},
        phase=[{"steps": 450, "batch": 1, "learning_rate": 2e-3, "warm_up": 10, "l1": 300.0}],
    )
    model = trained(given, folder, "facadebyheart", write_config, side="64")
    assert json.loads((model / "manifest.json").read_text())["generator"] == "pix2pixhd"
    found = figures(model, facades, folder / "facades.json", "--pairs", "BtoA", "--labels", "facades")
    assert found["model"] > 30
    ids = cv2.imencode(".png", facade_labels(colours[..., ::-1]))[1].tobytes()
    files = {"image": ("ids.png", ids), "instance": ("ids.png", ids)}
    reply = asked(server, "translate", files, model="facadebyheart")
    assert psnr_db(decoded(reply), truth) > 30


def test_a_dcgan_fools_its_discriminator_with_a_picture_by_heart_and_serves_it(
    folder: Path,
    dcgan_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
    server: ServedProcess,
) -> None:
    """Fooled means: over the last 50 steps it takes generated pictures for real with a mean probability above 0.15."""
    truth = cv2.resize(cv2.imread(str(folder / "pairs" / "1.png"))[:, :128], (64, 64), interpolation=cv2.INTER_AREA)
    (folder / "single").mkdir()
    cv2.imwrite(str(folder / "single" / "1.png"), truth)
    given = dcgan_run(
        **QUIET | {"log_every": 1},
        output=str(folder / "drawnbyheart"),
        generator={"nz": 8, "ngf": 4},
        discriminator_width=8,
        augment=False,
        data={"path": str(folder / "single"), "load_side": 64, "crop": 64, "flip": False},
        phase=[{"steps": 200, "batch": 4, "learning_rate": 2e-3, "final_learning_rate": 1e-3}],
    )
    assert "finished" in command("fit", write_config(given, folder / "drawnbyheart.toml"), "--device", "cpu")
    log = [json.loads(line) for line in (folder / "drawnbyheart" / "log.jsonl").read_text().splitlines()]
    assert np.mean([line["believed_fake"] for line in log[-50:]]) > 0.15
    request = ExportRequest(
        (folder / "drawnbyheart" / "generator.pth",), "drawn", folder / "pictures", output=folder / "models"
    )
    model = export_model(request, lambda _step: None).directory
    features, report = save_untrained_vgg16(folder / "vgg16.safetensors"), folder / "drawn.json"
    for copy in range(2, 5):  # photographs are divided into two sets of two
        cv2.imwrite(str(folder / "single" / f"{copy}.png"), truth)
    flags = ("--size", 64, "--vgg-features", features, "--json", report)
    command("evaluate", model, "--data", folder / "single", *flags)
    measured = json.loads(report.read_text())["figures"]
    assert measured["model"]["all"]["diversity"] > measured["photographs"]["all"]["diversity"] == 0
    assert measured["model"]["all"]["kid"] > measured["photographs"]["all"]["kid"]
    seed = {"seed": (None, "5")}  # the form of httpx for a multipart field without a file name
    reply = asked(server, "generate", seed, model="drawn")
    grey = np.full_like(truth, 128)
    assert psnr_db(decoded(reply), truth) > psnr_db(grey, truth) + 3
