"""Measures training steps in one precision: timed with sensors, then profiled."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from training.config import AnyConfig, Precision
from training.fit import make_trainee
from training.loop.runtime import start_runtime
from training.loop.schedule import StepPosition
from training.profiling.ceilings import synchronise
from training.profiling.operators import Operator, OperatorCalls, top_operators, trace_calls
from training.profiling.sensors import nvml_sensor, read_sensors

_TAKEN_APART = 3
"""Steps that the profiler watches for the table of operators."""


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

    @property
    def flop(self) -> int:
        """The floating-point operations of one step."""
        return sum(calls.flop for calls in self.calls)

    def as_json(self) -> dict[str, Any]:
        """Return all figures as JSON; of the groups of calls, the forty that took longest."""
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


def measure_steps(config: AnyConfig, precision: Precision, device: str | None, phase: int, steps: int) -> StepFigures:
    """Warm up, time `steps` steps of a phase, then profile a few more.

    Raises:
        TrainingError: the config's data cannot be used.
    """
    own = config.model_copy(update={"precision": precision})
    with start_runtime(own, device) as runtime:
        trainee = make_trainee(own, runtime)
        trainee.begin_phase(own.phase[phase])
        step = _make_stepper(trainee.step, own, phase)
        for _ in range(max(3, steps // 4)):
            step()
        synchronise(runtime.device)
        if runtime.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(runtime.device)
        with read_sensors(nvml_sensor(runtime.device)) as recorded:
            began = time.perf_counter()
            for _ in range(steps):
                step()
            synchronise(runtime.device)
            step_s = (time.perf_counter() - began) / steps
        peak = torch.cuda.max_memory_allocated(runtime.device) if runtime.device.type == "cuda" else None
        operators = top_operators(step, runtime.device, _TAKEN_APART)
        calls = [] if own.compile else trace_calls(step, runtime.device)  # compiled code has no operators to count
        return StepFigures(precision, step_s, own.phase[phase].batch / step_s, peak, recorded.means(), operators, calls)


def _make_stepper(
    step: Callable[[int, StepPosition[Any]], object], config: AnyConfig, phase: int
) -> Callable[[], None]:
    """Return a function that runs the phase's next step on each call, from the first again after the last."""
    number = -1

    def take() -> None:
        nonlocal number
        number = (number + 1) % config.phase[phase].steps
        step(number, StepPosition(phase, config.phase[phase], number, number * config.phase[phase].batch))

    return take
