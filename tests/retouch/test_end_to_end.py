"""The command line gives the same pictures with a real server and without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from retouch.command_line import app
from tests.serving.served_process import ServedProcess

pytestmark = [pytest.mark.slow, pytest.mark.covers_processes]

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
HERE = ("--models-dir", str(ROOT / "models"), "--engine", "fake")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a `retouch serve` with the shipped models' manifests and the fake engine."""
    with ServedProcess(tmp_path_factory.mktemp("server")) as served:
        yield served.url
        assert served.terminate() == 0


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run_apart(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a subprocess, as without a server it configures logging for its whole process."""
    return subprocess.run(
        [sys.executable, "-m", "retouch", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RETOUCH_ENGINE_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def pixels(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def test_a_server_and_this_process_make_the_same_picture(server: str, tmp_path: Path) -> None:
    image, mask = DATA / "dress.jpg", DATA / "dress_mask.png"
    by_server = run("inpaint", image, mask, "-o", tmp_path / "server.png", "--url", server)
    assert by_server.exit_code == 0, by_server.output
    here = run_apart(tmp_path, "inpaint", image, mask, "-o", "here.png", *HERE)
    assert here.returncode == 0, here.stderr
    assert here.stdout.startswith("here.png (photos/5 on fake/")

    assert (tmp_path / "here.png").read_bytes() == (tmp_path / "server.png").read_bytes()
    hole = np.asarray(Image.open(mask).convert("L")) >= 128
    assert np.array_equal(pixels(tmp_path / "here.png")[~hole], pixels(image)[~hole])
    assert not np.array_equal(pixels(tmp_path / "here.png")[hole], pixels(image)[hole])


def test_without_a_server_nothing_but_the_output_is_left_behind(tmp_path: Path) -> None:
    done = run_apart(tmp_path, "translate", DATA, "-o", "out", "--format", "jpeg", "--json", *HERE)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    summary = json.loads(done.stdout)
    assert (summary["done"], summary["failed"]) == (5, 0)
    assert len(list((tmp_path / "out").glob("*.jpg"))) == 5
    assert {path.name for path in tmp_path.iterdir()} <= {"out", "cache"}


def drawing_models(root: Path) -> Path:
    """Write a model that inpaints and one that generates, both from a latent, for the fake engine."""
    shipped = json.loads((ROOT / "models" / "photos" / "5" / "manifest.json").read_text("utf-8"))
    latent = {"name": "latent", "dtype": "float32", "shape": ["batch", 8]}
    changes = {"drawing": {"inputs": [*shipped["inputs"], latent]}, "faces": {"task": "generate", "inputs": [latent]}}
    for name, fields in changes.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "manifest.json").write_text(json.dumps({**shipped, **fields, "name": name, "version": 1}))  # type: ignore[dict-item]
    return root


def test_without_a_server_samples_and_pictures_from_nothing_are_made_too(tmp_path: Path) -> None:
    here = ("--models-dir", drawing_models(tmp_path / "models"), "--engine", "fake", "--seed", 4)
    image, mask = DATA / "dress.jpg", DATA / "dress_mask.png"
    samples = run_apart(tmp_path, "inpaint", image, mask, "-o", "o.png", "--samples", 2, "--model", "drawing", *here)
    assert samples.returncode == 0, samples.stderr
    assert (tmp_path / "o-1.png").read_bytes() != (tmp_path / "o-2.png").read_bytes()
    generated = run_apart(tmp_path, "generate", "-o", "face.png", "--model", "faces", *here)
    assert generated.returncode == 0, generated.stderr
    assert pixels(tmp_path / "face.png").shape == (256, 256, 3)


def test_the_shipped_models_draw_a_picture_from_nothing_without_being_named(tmp_path: Path) -> None:
    drawn = run_apart(tmp_path, "generate", "-o", "front.png", *HERE)
    assert drawn.returncode == 0, drawn.stderr
    assert drawn.stdout.startswith("front.png (housefronts/1 on fake/")
    assert pixels(tmp_path / "front.png").shape == (128, 128, 3)


def test_without_a_server_a_wrong_option_is_named(tmp_path: Path) -> None:
    done = run_apart(tmp_path, "translate", DATA / "skirt.jpg", "-o", "o.png", "--model", "../secret", *HERE)
    assert done.returncode == 1
    assert "skirt.jpg: model: it is not a model name; send NAME or NAME/VERSION" in done.stderr


def test_without_a_server_a_wrong_setting_is_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text("prot = 1", "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "retouch", "translate", DATA / "skirt.jpg", "-o", tmp_path / "o.png", *HERE],
        env={**os.environ, "RETOUCH_CONFIG": str(tmp_path / "o.toml")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: config file {tmp_path / 'o.toml'}: unknown setting prot; did you mean port?")


def test_the_servers_message_reaches_the_user(server: str, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture at all")
    result = run("translate", tmp_path / "broken.png", "-o", tmp_path / "o.png", "--url", server)
    assert result.exit_code == 1
    assert f"{tmp_path}/broken.png: 415 unsupported_type: " in result.stderr
    assert not (tmp_path / "o.png").exists()


def test_a_server_is_measured_by_its_own_headers(server: str, tmp_path: Path) -> None:
    result = run(
        *("bench", "--url", server, "--image", DATA / "dress.jpg", "--mask", DATA / "dress_mask.png"),
        *("--rate", "10", "--concurrency", "4", "--duration", "1", "--warm-up", "0.2"),
        *("--json", tmp_path / "o.json", "--fail-on-errors"),
    )
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "o.json").read_text("utf-8"))
    assert document["model"] == "photos/5"
    for measured in document["runs"]:
        assert set(measured["stages"]) == {"memory", "decode", "preprocess", "queue", "infer", "postprocess", "encode"}
        assert sum(measured["batch_sizes"].values()) == measured["ok"] == measured["requests"] > 0
        stages_ms = sum(stage["mean_ms"] for stage in measured["stages"].values())
        assert 0 < stages_ms < measured["latency_ms"]["mean"] * 1.05
