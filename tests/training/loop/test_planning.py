"""The planned number of steps in a given time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from training.__main__ import app
from training.config import PConvConfig
from training.fit import make_trainee
from training.loop.planning import measure_and_plan, plan_steps
from training.loop.runtime import Runtime

PHASES = [{"steps": 2000, "batch": 4, "learning_rate": 1e-3}, {"steps": 1000, "batch": 8, "learning_rate": 1e-3}]


def test_phases_keep_their_proportions_and_fill_the_time(partial_config: Callable[..., PConvConfig]) -> None:
    found = plan_steps(partial_config(phase=PHASES), [0.01, 0.03], 100)
    assert found.steps == (4000, 2000)
    assert found.images_per_s == pytest.approx((400, 800 / 3))


def test_a_plan_is_never_without_steps(partial_config: Callable[..., PConvConfig]) -> None:
    assert plan_steps(partial_config(phase=PHASES), [10.0, 10.0], 1).steps == (1, 1)


def test_a_plan_is_made_from_steps_that_are_measured_here(partial_config: Callable[..., PConvConfig]) -> None:
    config = partial_config(phase=[PHASES[0] | {"batch": 1}])
    assert measure_and_plan(config, Runtime(torch.device("cpu"), "fp32"), make_trainee, 60).steps[0] >= 50


def test_the_command_prints_flags_for_fit(
    partial_run: Callable[..., dict[str, Any]], write_config: Callable[[dict[str, Any], Path], Path], tmp_path: Path
) -> None:
    config = write_config(partial_run(phase=[PHASES[0]]), tmp_path / "config.toml")
    result = CliRunner().invoke(app, ["plan", str(config), "--seconds", "60", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("--set phase.0.steps=")
    assert result.stderr.splitlines()[:2] == ["phase 0: 0 of 50 steps measured", "phase 0: 10 of 50 steps measured"]


def test_the_command_prints_fast_and_slow_speeds_without_an_exponent(
    partial_run: Callable[..., dict[str, Any]],
    write_config: Callable[[dict[str, Any], Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("training.loop.planning.measure_step_seconds", lambda *_: [0.00325, 250.0])
    config = write_config(partial_run(phase=PHASES), tmp_path / "config.toml")
    result = CliRunner().invoke(app, ["plan", str(config), "--seconds", "60", "--device", "cpu"])
    assert result.stderr.splitlines() == ["phase 0: 1231 images/s", "phase 1: 0.032 images/s"]


def test_steps_are_rounded_down_only_where_there_are_enough_of_them(
    partial_config: Callable[..., PConvConfig],
) -> None:
    config = partial_config(phase=PHASES[:1])
    found = [plan_steps(config, [1.5], seconds).steps for seconds in (60, 75, 149)]
    assert found == [(40,), (50,), (50,)]
