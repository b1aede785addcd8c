import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from training.__main__ import app
from training.loop.runtime import Runtime

CONFIG = """
model = "pconv"
output = "{output}"
[generator]
levels = 2
width = 4
[data]
path = "{data}"
load_side = 40
crop = 32
[[phase]]
steps = 2
batch = 2
learning_rate = 1e-3
"""


@pytest.fixture
def config(tmp_path, photographs):
    path = tmp_path / "tiny.toml"
    path.write_text(CONFIG.format(output=tmp_path / "run", data=photographs))
    return path


def _profile(*arguments):
    return CliRunner().invoke(app, ["profile", *map(str, arguments)])


def test_command_takes_a_step_apart_in_each_precision_and_draws_the_roofline(config, tmp_path):
    done = _profile(config, "-o", tmp_path / "found", "--precisions", "fp32,bf16", "--steps", 3, "--device", "cpu")
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "found/profile.json").read_text())
    assert list(report["precisions"]) == ["fp32", "bf16"]
    assert min(report["ceilings"].values()) > 0
    for figures in report["precisions"].values():
        assert figures["images_per_s"] == pytest.approx(2000 / figures["step_ms"], rel=0.01)
        assert figures["peak_memory_gb"] is None
        assert {"convolution", "convolution_backward"} <= {calls["name"] for calls in figures["calls"]}
        assert any(row["name"].startswith("aten::") for row in figures["operators"])
    fp32, bf16 = report["precisions"].values()
    assert fp32["gflop_per_step"] == bf16["gflop_per_step"] > 0  # precision does not change the count
    assert "fp32: operators by their own device time" in done.output
    with Image.open(tmp_path / "found/roofline.png") as plot:
        assert plot.size[0] > 1000
    assert not (tmp_path / "run").exists()  # profiling leaves no run directory


def test_steps_are_taken_apart_as_launched_kernels(config, tmp_path, monkeypatch):
    """Kernels in a CUDA graph belong to no operators, so a replayed step would not be counted."""
    replayed = []

    monkeypatch.setattr(Runtime, "recorder", lambda _runtime, *, wanted: replayed.append(wanted))
    flags = ("--precisions", "fp32", "--steps", 1, "--device", "cpu", "--set", "cuda_graphs=true")
    assert _profile(config, "-o", tmp_path / "found", *flags).exit_code == 0
    assert replayed == [False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--phase", 1], "the config has 1 phases"), (["--precisions", "fp8"], "known are fp32, tf32, bf16, fp16")],
)
def test_wrong_flags_are_reported(config, arguments, message, tmp_path):
    done = _profile(config, "-o", tmp_path / "found", *arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("│", " ").split())


def test_an_output_that_cannot_be_written_ends_the_command_before_it_measures(config, tmp_path, monkeypatch):
    monkeypatch.setattr("training.profiling.session.measure_ceilings", lambda *_: pytest.fail("it measures"))
    (tmp_path / "file").touch()
    done = _profile(config, "-o", tmp_path / "file", "--device", "cpu")
    assert done.exit_code == 1
    assert f"{tmp_path / 'file'}: File exists" in done.stderr
