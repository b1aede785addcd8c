"""A study on this machine's CPU: cells in separate processes, resumption, and the report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from training.__main__ import app

pytestmark = [pytest.mark.slow, pytest.mark.covers_processes]


def study(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["study", *map(str, arguments)])
    return result.exit_code, result.output if result.exception is None else f"{result.output}{result.exception}"


@pytest.fixture(autouse=True)
def _one_thread_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use one thread a cell: tiny nets gain nothing from more, and busy machines lose much."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def config(
    partial_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
    tmp_path: Path,
    photographs: Path,
) -> Path:
    data = {"path": str(photographs), "validation": str(photographs), "load_side": 40, "crop": 32, "threads": 1}
    return write_config(partial_run(data={**data, "limit": 2, "validation_limit": 1}), tmp_path / "tiny.toml")


def test_a_study_prints_its_cells_beside_the_sources_figures_and_takes_up_where_it_was_cut(
    config: Path, tmp_path: Path
) -> None:
    flags = ("--config", config, "-o", tmp_path / "found", "--steps", 3, "--warm-up", 1, "--device", "cpu")
    code, output = study("pconv", *flags, "--cells", "fp32,tf32,best-2gpu")
    assert code == 0, output
    first = (tmp_path / "found/cells/fp32.json").read_text()
    assert not (tmp_path / "found/roofline.png").exists()  # there is nothing to compare with
    code, output = study("pconv", *flags, "--cells", "fp32,tf32,bf16,best-2gpu")
    assert code == 0, output
    assert (tmp_path / "found/cells/fp32.json").read_text() == first
    cells = json.loads((tmp_path / "found/study.json").read_text())["cells"]
    assert [cell["status"] for cell in cells.values()] == ["done", "not run", "done", "not run"]
    fp32, bf16 = cells["fp32"]["figures"], cells["bf16"]["figures"]
    assert fp32["speed_up"] == 1
    assert bf16["speed_up"] == pytest.approx(fp32["step_ms"] / bf16["step_ms"], rel=0.01)
    assert fp32["gflop_per_step"] == bf16["gflop_per_step"] > 0
    assert bf16["loss"] == pytest.approx(fp32["loss"], rel=0.05)
    assert fp32["power_w"] is fp32["device_memory_gb"] is None
    assert {"validation_psnr_db", "validation_ssim"} <= fp32.keys()
    assert "tf32: not run: TF32 is a format of NVIDIA's GPUs." in output
    assert "best-2gpu: not run: it needs 2 GPUs" in output
    assert "not measured" in output
    assert "| here: bf16 | CPU |" in output
    assert "| aten::mkldnn_convolution |" in output or "convolution" in output
    with Image.open(tmp_path / "found/roofline.png") as plot:
        assert plot.size[0] > 1000
    code, output = study("pconv", *flags, "--set", "seed=8")
    assert code != 0
    assert "has cells of other options" in output


def test_a_failed_cell_is_reported_and_the_others_are_measured(config: Path, tmp_path: Path) -> None:
    flags = (
        "--config",
        config,
        "-o",
        tmp_path / "found",
        "--steps",
        2,
        "--device",
        "cpu",
        "--set",
        "data.path=nowhere",
    )
    code, output = study("pconv", *flags, "--cells", "fp32,tf32")
    assert code == 0, output
    assert "fp32: failed: nowhere" in output
    assert "tf32: not run" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pconv", "--cells", "fp8"), "cell 'fp8'"),
        (("pconv", "--phase", 1), "phase 1"),
        (("dcgan",), "this study is about dcgan"),
        (("gan",), "known are pconv"),
    ],
)
def test_wrong_flags_are_reported(arguments: tuple[object, ...], message: str, config: Path, tmp_path: Path) -> None:
    code, output = study(*arguments, "--config", config, "-o", tmp_path / "found")
    assert code != 0
    assert message in " ".join(output.replace("│", " ").split())
