"""Runs with replayed steps, on a CPU: they stop, resume and change phases as other runs do."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.loop.test_replay import Repeater
from training.config import AnyConfig
from training.fit import fit
from training.loop.replay import WARM_UP
from training.loop.runtime import Runtime, start_runtime

PHASES = [
    {"steps": 6, "batch": 2, "learning_rate": 2e-3, "warm_up": 2},
    {"steps": 6, "batch": 3, "learning_rate": 1e-3},
]
Config = Callable[..., AnyConfig]


@pytest.fixture(autouse=True)
def _replayed_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runtime, "recorder", lambda _runtime, *, wanted: Repeater() if wanted else None)


def weights_after(config: AnyConfig, *, readings: int | None = None) -> tuple[int, dict[str, Tensor]]:
    """Start or resume a run until a number of clock readings; returns the steps done and the net's weights."""
    with start_runtime(config, "cpu") as runtime:
        steps = fit(config, runtime, readings, count().__next__).step
    return steps, torch.load(config.output / "checkpoint.pt", weights_only=True)["trainee"]["net"]


@pytest.mark.parametrize("readings", [15, 28])
@pytest.mark.parametrize("model", ["dcgan", "pix2pix"])
def test_a_run_that_is_stopped_among_replayed_steps_goes_on_to_the_same_weights(
    model: str, readings: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    make: Config = request.getfixturevalue(f"{model}_config")
    _, unbroken = weights_after(make(phase=PHASES, cuda_graphs=True, output=tmp_path / "unbroken"))
    cut = make(phase=PHASES, cuda_graphs=True, output=tmp_path / "cut")
    stopped, _ = weights_after(cut, readings=readings)
    assert stopped % PHASES[0]["steps"] > WARM_UP
    steps, weights = weights_after(cut)
    assert steps == sum(phase["steps"] for phase in PHASES)
    assert [name for name, value in unbroken.items() if not torch.equal(weights[name], value)] == []


@pytest.mark.parametrize("first", [True, False])
def test_a_run_goes_on_with_graphs_or_without(first: bool, tmp_path: Path, dcgan_config: Config) -> None:
    """With graphs the learning rate is FP32, so weights are not bit-identical."""
    _, unbroken = weights_after(dcgan_config(phase=PHASES, output=tmp_path / "unbroken"))
    weights_after(dcgan_config(phase=PHASES, cuda_graphs=first, output=tmp_path / "cut"), readings=15)
    _, weights = weights_after(dcgan_config(phase=PHASES, cuda_graphs=not first, output=tmp_path / "cut"))
    for name, value in unbroken.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-5, atol=1e-6)
