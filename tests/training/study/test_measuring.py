"""The measurement of a cell, in this process on the CPU."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from training.study.cells import parse_cell
from training.study.measuring import CellRequest, measure_cell
from training.tasks.partial_conv import PartialTrainee


@pytest.fixture
def ask(
    partial_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
    tmp_path: Path,
    photographs: Path,
) -> Callable[..., CellRequest]:
    data = {"path": str(photographs), "validation": str(photographs), "load_side": 40, "crop": 32, "threads": 1}
    config = write_config(partial_run(data={**data, "limit": 2, "validation_limit": 1}), tmp_path / "tiny.toml")

    def make(**more: Any) -> CellRequest:
        request = CellRequest(str(config), (), parse_cell("fp32"), 0, 1, 2, 2, "cpu", str(tmp_path / "fp32.json"))
        return CellRequest(**{**vars(request), **more})

    return make


def test_figures_are_kept_before_steps_are_profiled(ask: Callable[..., CellRequest], tmp_path: Path) -> None:
    kept: list[dict[str, Any]] = []
    said: list[str] = []
    measure_cell(ask(lock_file=str(tmp_path / "lock")), kept.append, said.append)
    first, last = kept
    assert first["status"] == "done"
    assert first["figures"]["step_ms"] > 0
    assert {"loss", "validation_psnr_db"} <= first["figures"].keys()
    assert first["ceilings"] is None
    assert "gflop_per_step" not in first["figures"]
    assert last["figures"].items() >= first["figures"].items()
    assert last["figures"]["gflop_per_step"] > 0
    assert last["operators"]
    assert last["calls"]
    assert said[:2] == ["reads its data", "is timed"]


def test_a_cell_that_is_not_profiled_ends_with_its_figures(ask: Callable[..., CellRequest]) -> None:
    kept: list[dict[str, Any]] = []
    measure_cell(ask(profiled=False), kept.append, lambda _line: None)
    assert [row["operators"] for row in kept] == [[]]


def test_a_compiled_net_is_gone_before_the_eager_one_is_made(
    ask: Callable[..., CellRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both at once would need twice the memory of the device."""
    alive: list[int] = []

    def look(line: str) -> None:
        if line in {"is profiled", "reads its data again, for an eager step"}:
            alive.append(sum(type(each) is PartialTrainee for each in gc.get_objects()))

    monkeypatch.setattr(torch, "compile", lambda net, **_: net)  # inductor takes ten seconds
    measure_cell(ask(cell=parse_cell("fp32-compiled")), lambda _row: None, look)
    assert alive == [1, 0]
