"""Replayed steps of FillNet, on a CPU: they run again on the recorded tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.loop.test_replay import Repeater
from training.fill_config import FillConfig
from training.loop.replay import WARM_UP, Recorder
from training.loop.runtime import Runtime
from training.loop.schedule import position_of_step
from training.tasks.fillnet import FillTrainee

CPU = torch.device("cpu")
YOUNG = 5
"""Number of first steps, each of which measures the gradients' sizes."""
KINDS = 2
"""Number of kinds of steps: with and without R1."""
STEPS = YOUNG + KINDS * (WARM_UP + 3)


@dataclass(frozen=True)
class RepeatingRuntime(Runtime):
    """A CPU runtime with a recorder."""

    repeater: Repeater = field(default_factory=Repeater)

    def recorder(self, *, wanted: bool) -> Recorder | None:
        return self.repeater if wanted else None


def trained(config: FillConfig, runtime: Runtime) -> tuple[list[dict[str, float]], list[Tensor]]:
    """Run some steps; returns their figures, and the weights and averages after them."""
    trainee = FillTrainee(config, runtime)
    trainee.begin_phase(config.phase[0])
    figures = [trainee.step(number, position_of_step(number, config.phase)) for number in range(STEPS)]
    state: dict[str, Any] = trainee.state()
    tensors = [*state["net"].values(), *state["judge"]["net"].values(), *state["average"].values()]
    return [{name: float(value) for name, value in each.items()} for each in figures], tensors


def test_replayed_steps_are_those_of_other_steps(fill_config: Callable[..., FillConfig]) -> None:
    phase = [{"steps": STEPS, "batch": 2, "learning_rate": 1e-3, "warm_up": 3}]
    config, recorder = fill_config(cuda_graphs=True, phase=phase), Repeater()
    wanted, weights = trained(config, Runtime(CPU, "fp32"))
    found, replayed = trained(config, RepeatingRuntime(CPU, "fp32", repeater=recorder))
    assert found == [pytest.approx(each, rel=1e-4) for each in wanted], "a recording has its learning rate in FP32"
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(replayed, weights, strict=True))
    assert (len(recorder.recordings), recorder.runs.count("replay")) == (KINDS, STEPS - YOUNG - KINDS * WARM_UP)


def test_steps_of_another_size_have_a_recording_of_their_own(fill_config: Callable[..., FillConfig]) -> None:
    phase = [{"steps": STEPS, "batch": 2, "learning_rate": 1e-3, "crops": [32, 64]}]
    judge = fill_config().judge.model_dump() | {"penalty": 0.0}
    config, recorder = fill_config(cuda_graphs=True, phase=phase, judge=judge), Repeater()
    wanted, _ = trained(config, Runtime(CPU, "fp32"))
    found, _ = trained(config, RepeatingRuntime(CPU, "fp32", repeater=recorder))
    assert found == [pytest.approx(each, rel=1e-4) for each in wanted]
    assert len(recorder.recordings) == len(phase[0]["crops"])  # type: ignore[arg-type]
