"""Measures training steps in one precision: timed with sensors, then profiled."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from training.config import AnyConfig, Precision
from training.fit import make_trainee
from training.loop.runtime import Runtime, start_runtime, synchronise
from training.loop.schedule import StepPosition
from training.loop.trainee import Trainee
from training.profiling.operators import Operator, OperatorCalls, top_operators, trace_calls
from training.profiling.sensors import nvml_sensor, read_sensors
from training.seeds import Purpose, derived_seed

PROFILED_STEPS = 3
"""Steps that are profiled for the table of operators."""


@dataclass(frozen=True)
class StepFigures:
    """The measurements of training steps in one precision."""

    precision: Precision
    step_s: float
    images_per_s: float
    peak_memory_bytes: int | None
    sensors: dict[str, float]
    operators: list[Operator]
    calls: list[OperatorCalls] = field(repr=False)
    label: str = ""
    """The name in a plot; if empty, the precision is shown."""

    @property
    def flop(self) -> int:
        """The floating-point operations of one step."""
        return sum(calls.flop for calls in self.calls)

    def as_json(self) -> dict[str, Any]:
        """Return all figures as JSON, with the forty slowest groups of calls."""
        slowest = sorted(self.calls, key=lambda calls: calls.device_s, reverse=True)[:40]
        return {
            "step_ms": round(self.step_s * 1e3, 3),
            "images_per_s": round(self.images_per_s, 2),
            "peak_memory_gb": None if self.peak_memory_bytes is None else round(self.peak_memory_bytes / 1e9, 3),
            **self.sensors,
            "gflop_per_step": round(self.flop / 1e9, 2),
            "tflop_per_s": round(self.flop / self.step_s / 1e12, 3),
            "operators": [asdict(operator) for operator in self.operators],
            "calls": [asdict(calls) for calls in slowest],
        }


@dataclass(frozen=True)
class TimedSteps:
    """The measurements of steps that ran without the profiler."""

    step_s: float
    peak_memory_bytes: int | None
    sensors: dict[str, float]
    losses: list[float]
    """The generator's loss at each timed step; for fillnet, which balances several losses, the first of them."""


def measure_steps(config: AnyConfig, precision: Precision, device: str | None, phase: int, steps: int) -> StepFigures:
    """Warm up, time `steps` steps of a phase, then profile a few more.

    Raises:
        TrainingError: the config's data cannot be used.
    """
    own = config.model_copy(update={"precision": precision})
    with start_runtime(own, device) as runtime:
        trainee = make_trainee(own, runtime)
        trainee.begin_phase(own.phase[phase])
        step = make_stepper(trainee, own, runtime, phase)
        timed = time_steps(step, runtime, max(3, steps // 4), steps)
        operators = top_operators(step, runtime.device, PROFILED_STEPS)
        calls = [] if own.compile else trace_calls(step, runtime.device)  # compiled code has no operators to count
        images_per_s = own.phase[phase].batch / timed.step_s
        return StepFigures(
            precision, timed.step_s, images_per_s, timed.peak_memory_bytes, timed.sensors, operators, calls
        )


def time_steps(step: Callable[[], dict[str, Tensor]], runtime: Runtime, warm_up: int, steps: int) -> TimedSteps:
    """Run `warm_up` steps, then time `steps` more with the sensors; no step among these waits for the device."""
    for _ in range(warm_up):
        step()
    synchronise(runtime.device)
    on_gpu, losses = runtime.device.type == "cuda", []
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(runtime.device)
    with read_sensors(nvml_sensor(runtime.device)) as recorded:
        started = time.perf_counter()
        for _ in range(steps):
            figures = step()
            losses.append(figures["loss"] if "loss" in figures else next(iter(figures.values())))
        synchronise(runtime.device)
        step_s = (time.perf_counter() - started) / steps
    peak = torch.cuda.max_memory_allocated(runtime.device) if on_gpu else None
    stacked = torch.stack(losses).float()
    runtime.average_over_processes([stacked])
    return TimedSteps(step_s, peak, recorded.means(), stacked.tolist())


def make_stepper(
    trainee: Trainee[Any], config: AnyConfig, runtime: Runtime, phase: int
) -> Callable[[], dict[str, Tensor]]:
    """Return a function that runs the phase's next step on each call, as `fit` does; the first follows the last."""
    number = -1

    def take() -> dict[str, Tensor]:
        nonlocal number
        number = (number + 1) % config.phase[phase].steps
        torch.manual_seed(derived_seed(config.seed, number * runtime.world + runtime.rank, Purpose.DROPOUT))
        return trainee.step(
            number, StepPosition(phase, config.phase[phase], number, number * config.phase[phase].batch)
        )

    return take
