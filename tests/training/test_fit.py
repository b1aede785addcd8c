"""Whole runs: killed and continued, ended by the time limit, or distributed over processes."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.serving.waiting import wait_until
from training.config import AnyConfig, load_config
from training.errors import CheckpointMismatch, TrainingDiverged
from training.fit import FitOutcome, fit
from training.loop.runtime import start_runtime

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
STEPS = 80
PHASES = [
    {"steps": STEPS // 2, "batch": 2, "learning_rate": 2e-3, "warm_up": 2},
    {"steps": STEPS // 2, "batch": 3, "learning_rate": 1e-3},
]
Make = Callable[..., dict[str, Any]]
Write = Callable[[dict[str, Any], Path], Path]


def run(
    config: AnyConfig, stop_after_s: float | None = None, clock: Callable[[], float] = time.monotonic
) -> FitOutcome:
    with start_runtime(config, "cpu") as runtime:
        return fit(config, runtime, stop_after_s, clock)


def weights(config: AnyConfig) -> dict[str, Tensor]:
    """Return every value of a checkpoint by its path."""
    saved = torch.load(config.output / "checkpoint.pt", weights_only=True)

    def flat(value: Any, where: str) -> Iterator[tuple[str, Tensor]]:
        if isinstance(value, Tensor):
            yield where, value
        elif isinstance(value, dict):
            for key, inner in value.items():
                yield from flat(inner, f"{where}/{key}")

    return dict(flat(saved["trainee"], ""))


def assert_same(first: AnyConfig, second: AnyConfig) -> None:
    ours, theirs = weights(first), weights(second)
    assert ours.keys() == theirs.keys()
    assert [key for key in ours if not torch.equal(ours[key], theirs[key])] == []


@contextmanager
def command(config: Path, *, processes: int = 1) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python -m training fit`, alone or under torchrun, on one CPU thread."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    if processes == 1:  # it is killed before it can write coverage data
        environment.pop("COVERAGE_PROCESS_CONFIG", None)
    arguments = [sys.executable, *launcher, "-m", "training", "fit", str(config)]
    with subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def await_lines(log: Path, wanted: int, process: subprocess.Popen[bytes]) -> None:
    def written() -> bool:
        assert process.poll() is None, "ended before it could be killed"
        return log.exists() and log.read_text().count("\n") >= wanted

    wait_until(written, 600)  # to import torch took more than 100 s on a machine with ten such processes


LARGE = [
    {"part": "prior", "steps": 2, "batch": 1, "learning_rate": 2e-3},
    {"part": "diverse", "steps": 3, "batch": 1, "learning_rate": 1e-3},
]
"""Fewer steps, for nets that take 256² and nothing else."""
WIDE = [phase | {"steps": 12} for phase in PHASES]
"""Fewer steps, for a net whose step takes long."""
NET = {"widths": "8,8", "encoder": "1,0", "decoder": "0,1", "context": "0,2"}
JUDGES = {"shares": {"perceptual": 0.0, "patches": 0.2}, "patches": {"widths": [4, 4]}}


@pytest.mark.parametrize(
    ("model", "killed_after", "given"),
    [
        *(("partial_run", 17, {}), ("pix2pix_run", 45, {}), ("fill_run", 33, {"generator": NET, **JUDGES})),
        *(("dcgan_run", 51, {}), ("pix2pixhd_run", 29, {}), ("pgn_run", 9, {"phase": WIDE})),
        ("pdgan_run", 3, {"phase": LARGE}),
    ],
)
def test_a_killed_run_goes_on_to_the_same_weights_as_an_unbroken_one(
    model: str, killed_after: int, given: Any, tmp_path: Path, write_config: Write, request: pytest.FixtureRequest
) -> None:
    make: Make = request.getfixturevalue(model)
    knobs = {"phase": PHASES, **given}
    total = sum(phase["steps"] for phase in knobs["phase"])
    knobs["checkpoint_every"] = max(2, total // 11)
    unbroken = load_config(write_config(make(**knobs, output=str(tmp_path / "unbroken")), tmp_path / "unbroken.toml"))
    assert run(unbroken).finished
    path = write_config(make(**knobs, output=str(tmp_path / "killed")), tmp_path / "killed.toml")
    killed = load_config(path)
    with command(path) as process:
        await_lines(killed.output / "log.jsonl", killed_after, process)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert run(killed).finished
    assert_same(unbroken, killed)
    steps = [json.loads(line)["step"] for line in (killed.output / "log.jsonl").read_text().splitlines()]
    assert steps == list(range(1, total + 1))


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


def test_a_run_does_not_go_on_under_other_knobs(partial_config: Callable[..., AnyConfig]) -> None:
    run(partial_config())
    with pytest.raises(CheckpointMismatch, match="other knobs"):
        run(partial_config(seed=9))
    assert run(partial_config(log_every=3)).finished


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


@pytest.mark.parametrize(("model", "batch"), [("partial_run", 8), ("pix2pixhd_run", 8), ("pgn_run", 16)])
def test_two_processes_share_a_batch_and_log_the_same_losses(
    model: str, batch: int, write_config: Write, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    make: Make = request.getfixturevalue(model)
    phase = {"steps": 6, "batch": batch, "learning_rate": 1e-3}
    alone = load_config(write_config(make(phase=[phase], output=str(tmp_path / "alone")), tmp_path / "alone.toml"))
    run(alone)
    path = write_config(make(phase=[phase], output=str(tmp_path / "two")), tmp_path / "two.toml")
    with command(path, processes=2) as process:
        assert process.wait(240) == 0
    curves = [
        [json.loads(line)["loss"] for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("alone", "two")
    ]
    assert len(curves[0]) == 6
    assert curves[1] == pytest.approx(curves[0], rel=0.05)


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
    knobs = request.getfixturevalue(model)()
    asked = load_config(write_config(knobs | {"compile": True}, tmp_path / "asked.toml"))
    with pytest.raises(NotImplementedError):
        run(asked)
    del knobs["compile"]
    assert run(load_config(write_config(knobs, tmp_path / "plain.toml"))).finished


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
