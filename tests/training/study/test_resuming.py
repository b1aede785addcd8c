"""Resuming cells that an earlier call has measured, without running them again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training.study.session import StudyRequest, run_study
from training.study.sources import STUDIES


@pytest.fixture
def request_for(
    partial_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
    tmp_path: Path,
    photographs: Path,
) -> Callable[..., StudyRequest]:
    config = write_config(partial_run(data={"path": str(photographs), "crop": 32}), tmp_path / "tiny.toml")

    def make(**more: Any) -> StudyRequest:
        return StudyRequest(STUDIES["pconv"], config, (), ("bf16",), tmp_path / "found", device="cpu", **more)

    return make


def test_a_cell_that_was_only_timed_is_kept_unless_its_profile_is_asked_for(
    request_for: Callable[..., StudyRequest], tmp_path: Path
) -> None:
    figures = {"step_ms": 2.0, "images_per_s": 500.0, "power_w": None}
    cell = {"name": "bf16", "precision": "bf16", "compiled": False, "gpus": 1}
    parts: dict[str, Any] = {"ceilings": None, "operators": [], "calls": []}
    row = {"status": "done", "cell": cell, "device": "CPU", "torch": "2", "batch": 1, "figures": figures, **parts}
    held = tmp_path / "found/cells/bf16.json"
    held.parent.mkdir(parents=True)
    held.write_text(json.dumps(row), "utf-8")
    said: list[str] = []
    assert run_study(request_for(profiled=False), said.append)["bf16"] == row
    assert not said
    assert run_study(request_for(limit_s=0.01), said.append)["bf16"] == row  # cut off: the earlier figures stay
    assert said == ["bf16: 20 steps to warm up, 100 timed", "bf16: its steps were timed, and not profiled"]


def test_a_cell_that_is_cut_before_its_figures_has_failed(request_for: Callable[..., StudyRequest]) -> None:
    row = run_study(request_for(limit_s=0.01))["bf16"]
    assert row == {"status": "failed", "reason": "it was not done after 0.01 s"}
