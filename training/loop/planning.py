"""Computes how many steps fit into a given time on this host: a learning rate schedule must know its end beforehand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from training.config import AnyConfig
from training.loop.runtime import Runtime, synchronise
from training.loop.schedule import StepPosition
from training.loop.trainee import Trainee

_WARM_UP, _MEASURED, _REPORTED = 10, 40, 10
_ROUND = 50


@dataclass(frozen=True)
class Plan:
    """The steps of each phase, and the measured speeds that they were computed from."""

    steps: tuple[int, ...]
    images_per_s: tuple[float, ...]


def measure_step_seconds(
    config: AnyConfig,
    runtime: Runtime,
    trainee: Trainee[Any],
    clock: Callable[[], float],
    report: Callable[[str], None] = lambda _line: None,
) -> list[float]:
    """Measure the seconds of a step in each phase, without compilation; the trainee cannot be used afterwards.

    `report` is called with a line of progress every ten steps: on a CPU a step can take a minute.
    """
    seconds = []
    for index, phase in enumerate(config.phase):
        trainee.begin_phase(phase)
        started = 0.0
        for step in range(_WARM_UP + _MEASURED):
            if step == _WARM_UP:
                synchronise(runtime.device)
                started = clock()
            if step % _REPORTED == 0:
                report(f"phase {index}: {step} of {_WARM_UP + _MEASURED} steps measured")
            trainee.step(step, StepPosition(index, phase, step, step * phase.batch))
        synchronise(runtime.device)
        seconds.append((clock() - started) / _MEASURED)
    return seconds


def plan_steps(config: AnyConfig, seconds_a_step: Sequence[float], seconds: float) -> Plan:
    """Scale the phases in proportion so that together they take `seconds`; 50 steps or more are rounded."""
    whole = sum(phase.steps * each for phase, each in zip(config.phase, seconds_a_step, strict=True))
    steps = (int(phase.steps * seconds / whole) for phase in config.phase)
    return Plan(
        tuple(count - count % _ROUND if count >= _ROUND else max(1, count) for count in steps),
        tuple(phase.batch / each for phase, each in zip(config.phase, seconds_a_step, strict=True)),
    )


def measure_and_plan(
    config: AnyConfig,
    runtime: Runtime,
    make: Callable[..., Trainee[Any]],
    seconds: float,
    report: Callable[[str], None] = lambda _line: None,
) -> Plan:
    """Measure the config on this host's device and plan its steps; `report` is called with lines of progress."""
    measured = measure_step_seconds(config, runtime, make(config, runtime), time.perf_counter, report)
    return plan_steps(config, measured, seconds)
