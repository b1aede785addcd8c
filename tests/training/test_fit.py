"""Whole runs: ended by the time limit or by divergence, or started from other weights."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.whole_runs import PHASES, assert_same, run, save_untrained_vgg16, weights
from training.config import AnyConfig, load_config
from training.errors import CheckpointMismatch, RunBusy, TrainingDiverged
from training.loop.checkpoints import hold_run

pytestmark = pytest.mark.slow

Make = Callable[..., dict[str, Any]]
Write = Callable[[dict[str, Any], Path], Path]


def test_a_run_cut_by_the_clock_again_and_again_ends_with_the_same_weights(
    partial_run: Make, partial_config: Callable[..., AnyConfig], tmp_path: Path
) -> None:
    phases = [PHASES[0] | {"steps": 5}, PHASES[1] | {"steps": 4, "freeze_encoder_norm": True}]
    unbroken = partial_config(phase=phases, output=tmp_path / "unbroken")
    cut = partial_config(phase=phases, output=tmp_path / "cut", checkpoint_every=100)
    run(unbroken)
    ends: list[int] = []
    while not ends or ends[-1] < 9:
        ends.append(run(cut, stop_after_s=6.5, clock=count().__next__).step)
    assert len(ends) > 2
    assert_same(unbroken, cut)


def test_another_seed_gives_other_weights(partial_config: Callable[..., AnyConfig], tmp_path: Path) -> None:
    first, other = (partial_config(seed=seed, output=tmp_path / str(seed)) for seed in (1, 2))
    run(first)
    run(other)
    assert not torch.equal(
        weights(first)["/net/enc_1.conv.input_conv.weight"], weights(other)["/net/enc_1.conv.input_conv.weight"]
    )


def test_a_run_does_not_go_on_under_other_options(partial_config: Callable[..., AnyConfig]) -> None:
    run(partial_config())
    with pytest.raises(CheckpointMismatch, match="other options"):
        run(partial_config(seed=9))
    assert run(partial_config(log_every=3)).finished


def test_a_second_run_in_the_same_folder_is_refused_before_it_writes(
    partial_config: Callable[..., AnyConfig],
) -> None:
    config = partial_config()
    config.output.mkdir(parents=True)
    with hold_run(config.output), pytest.raises(RunBusy):
        run(config)
    assert list(config.output.iterdir()) == []
    assert run(config).finished


def test_a_run_leaves_generators_sheets_and_a_log(partial_config: Callable[..., AnyConfig], photographs: Path) -> None:
    data = {"path": photographs, "load_side": 40, "crop": 32, "validation": photographs}
    phases = [{"steps": 2, "batch": 2, "learning_rate": 1e-3}] * 2
    config = partial_config(data=data, phase=phases, sheet_every=3)
    outcome = run(config)
    assert outcome.generator == config.output / "generator.pth"
    assert (config.output / "generator-phase0.pth").exists()
    assert [path.name for path in sorted((config.output / "sheets").glob("*.png"))] == [
        "0000002.png",
        "0000003.png",
        "0000004.png",
    ]
    figures = [json.loads(line) for line in (config.output / "log.jsonl").read_text().splitlines()]
    assert {"hole", "valid", "loss", "learning_rate", "images_per_s"} <= figures[0].keys()
    assert sum("validation_psnr_db" in line for line in figures) == 3


def log_of(config: AnyConfig) -> list[dict[str, float]]:
    return [json.loads(line) for line in (config.output / "log.jsonl").read_text().splitlines()]


RUINOUS = {"steps": 8, "batch": 2, "learning_rate": 1e30}


@pytest.mark.parametrize("log_every", [1, 100])
def test_a_run_that_diverges_ends_and_leaves_its_last_sound_checkpoint(
    log_every: int, partial_config: Callable[..., AnyConfig]
) -> None:
    phases = [PHASES[0] | {"steps": 4}, RUINOUS]
    config = partial_config(phase=phases, log_every=log_every, checkpoint_every=4)
    with pytest.raises(TrainingDiverged, match=r"^step \d+: .*last checkpoint is from step 4.*learning_rate"):
        run(config)
    assert torch.load(config.output / "checkpoint.pt", weights_only=True)["step"] == 4
    assert all(tensor.isfinite().all() for tensor in weights(config).values())
    assert all(math.isfinite(value) for line in log_of(config) for value in line.values())


def test_a_run_that_diverges_before_its_first_checkpoint_saves_nothing(
    partial_config: Callable[..., AnyConfig],
) -> None:
    config = partial_config(phase=[RUINOUS], log_every=100, sheet_every=4, checkpoint_every=100)
    with pytest.raises(TrainingDiverged, match="no checkpoint"):
        run(config)
    assert [path.name for path in config.output.rglob("*.p*")] == []


def test_a_run_cut_on_the_last_step_of_a_phase_keeps_what_the_phase_leaves(
    partial_config: Callable[..., AnyConfig], photographs: Path
) -> None:
    data = {"path": photographs, "load_side": 40, "crop": 32, "validation": photographs}
    config = partial_config(data=data, phase=[PHASES[0] | {"steps": 1}, PHASES[1] | {"steps": 1}])
    ends = [run(config, stop_after_s=0, clock=count().__next__).step for _ in range(2)]
    assert ends == [1, 2]
    assert (config.output / "generator-phase0.pth").exists()
    assert [path.name for path in sorted((config.output / "sheets").glob("*.png"))] == ["0000001.png", "0000002.png"]
    assert [line["step"] for line in log_of(config) if "validation_psnr_db" in line] == [1, 2]


def test_the_clock_is_looked_at_after_every_step_and_not_only_on_lines_of_the_log(
    partial_config: Callable[..., AnyConfig],
) -> None:
    assert run(partial_config(log_every=100), stop_after_s=0, clock=count().__next__).step == 1


def test_a_moved_run_goes_on_without_the_weights_that_it_began_with_and_measured_first(
    partial_config: Callable[..., AnyConfig], photographs: Path, tmp_path: Path
) -> None:
    data = {"path": photographs, "load_side": 40, "crop": 32, "validation": photographs}
    earlier = partial_config(data=data, half_weights=False, output=tmp_path / "first")
    begun = run(earlier).generator
    assert run(partial_config(data=data, initial=begun), stop_after_s=0, clock=count().__next__).step == 1
    assert run(partial_config(data=data, initial=tmp_path / "not on this host.pth")).finished
    starts = [line["validation_psnr_db"] for line in log_of(partial_config()) if line["step"] == 0]
    assert starts == [pytest.approx(log_of(earlier)[-1]["validation_psnr_db"])]


def test_a_moved_run_goes_on_without_the_judge_that_it_began_with(
    fill_config: Callable[..., AnyConfig], tmp_path: Path
) -> None:
    run(fill_config(output=tmp_path / "first"))
    state = torch.load(tmp_path / "first/checkpoint.pt", weights_only=True)["trainee"]["judge"]["net"]
    torch.save(state, tmp_path / "judge.pth")
    judge = fill_config().model_dump()["judge"]
    begun = fill_config(judge=judge | {"initial": tmp_path / "judge.pth"})
    assert run(begun, stop_after_s=0, clock=count().__next__).step == 1
    assert run(fill_config(judge=judge | {"initial": tmp_path / "not on this host.pth"})).finished


def test_a_moved_run_of_pd_gan_goes_on_without_the_discriminator_that_it_began_with(
    pdgan_config: Callable[..., AnyConfig], tmp_path: Path
) -> None:
    phase = {"steps": 2, "batch": 1, "learning_rate": 1e-3, "diversity": 0.0, "projected": 1.0}
    given = {"features": save_untrained_vgg16(tmp_path / "vgg16.safetensors"), "phase": [phase]}
    projected = {"width": 4, "penalty": 0.0, "penalty_every": 1}
    run(pdgan_config(**given, projected=projected, output=tmp_path / "first"), stop_after_s=0, clock=count().__next__)
    state = torch.load(tmp_path / "first/checkpoint.pt", weights_only=True)["trainee"]["projected"]["net"]
    torch.save(state, tmp_path / "projected.pth")
    begun = pdgan_config(**given, projected=projected | {"initial": tmp_path / "projected.pth"})
    assert run(begun, stop_after_s=0, clock=count().__next__).step == 1
    moved = pdgan_config(**given, projected=projected | {"initial": tmp_path / "not on this host.pth"})
    assert run(moved).finished


@pytest.mark.parametrize("model", ["partial_run", "pix2pix_run"])
def test_a_cpu_compiles_nothing_unless_asked_to(
    model: str,
    tmp_path: Path,
    write_config: Write,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise NotImplementedError("there is no compiler here")

    monkeypatch.setattr(torch, "compile", refuse)
    options = request.getfixturevalue(model)()
    asked = load_config(write_config(options | {"compile": True}, tmp_path / "asked.toml"))
    with pytest.raises(NotImplementedError):
        run(asked)
    del options["compile"]
    assert run(load_config(write_config(options, tmp_path / "plain.toml"))).finished


def test_a_run_by_the_clock_stretches_its_phases_and_counts_on_after_a_cut(
    fill_config: Callable[..., AnyConfig], tmp_path: Path
) -> None:
    falling = {"steps": 300, "batch": 1, "learning_rate": 1e-3, "final_learning_rate": 1e-4}
    phases = [falling, {"steps": 100, "batch": 1, "learning_rate": 1e-4}]
    config = fill_config(phase=phases, seconds=40.0, checkpoint_every=100)
    first = run(config, stop_after_s=20, clock=count().__next__)
    assert not first.finished
    second = run(config, clock=count().__next__)
    assert second.finished
    assert second.step == second.total
    rates = [line["learning_rate"] for line in log_of(config) if "learning_rate" in line]
    assert rates == sorted(rates, reverse=True)
    assert (config.output / "generator-phase0.pth").exists()
