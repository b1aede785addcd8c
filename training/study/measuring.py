"""Measures one cell of a study, in a separate process or, on several GPUs, in one of the processes of torchrun."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from training.config import AnyConfig, load_config
from training.fit import make_trainee
from training.loop.runtime import Runtime, start_runtime, synchronise
from training.loop.trainee import Trainee
from training.profiling.ceilings import measure_ceilings
from training.profiling.operators import OperatorCalls, top_operators, trace_calls
from training.profiling.stepping import PROFILED_STEPS, TimedSteps, make_stepper, time_steps
from training.study.cells import Cell, config_of_cell
from training.study.device_lock import DeviceLock

_LOSS_POINTS = 100
_SETTLING = 3
"""Steps of a compiled cell's warm-up that are run just before the timed ones, after the wait for the device."""

Row = dict[str, Any]


@dataclass(frozen=True)
class CellRequest:
    """The request for a cell: how steps of a config are to be computed, and the file for the figures."""

    config: str
    """Path of the TOML file."""
    overrides: tuple[str, ...]
    cell: Cell
    phase: int
    warm_up: int
    steps: int
    pictures: int
    """Maximum number of pictures of the data that are read."""
    device: str | None
    result: str
    """Path of the JSON that is written."""
    lock_file: str | None = None
    """Path of the lock that concurrent studies share, so that each times its steps alone."""
    profiled: bool = True
    """Whether steps are profiled too: operators, FLOPs, ceilings."""


def measure_cell(request: CellRequest, keep: Callable[[Row], None], notify: Callable[[str], None]) -> None:
    """Train the steps of a cell, measure and validate; then profile a few more steps, if the request says so.

    The leading process writes the figures as soon as they are measured, and again with the profile's.

    Raises:
        TrainingError: the config or its data cannot be used.
    """
    cell, steps = request.cell, request.warm_up + request.steps
    config = config_of_cell(
        load_config(Path(request.config), request.overrides), cell, request.phase, steps, request.pictures
    )
    lock = DeviceLock(Path(request.lock_file) if request.lock_file else None, f"{config.model} {cell.name}", notify)
    with start_runtime(config, request.device) as runtime:
        run = _CellRun(config, runtime, lock, notify)
        run.prepare("reads its data")
        settling = run.compile(request.warm_up) if config.compile else request.warm_up
        with lock.exclusive():
            notify("is timed")
            timed = time_steps(run.step, runtime, settling, request.steps)
            notify(f"took {timed.step_s * 1e3:.4g} ms a step; validates")
            validation = _rounded(run.trainee.validate())
        if request.lock_file:  # it would include the memory of other studies
            timed.sensors.pop("highest_device_memory_gb", None)
        row = _timed_row(cell, config, runtime, timed, validation)
        if runtime.is_leader:
            keep(row)
        if not request.profiled:
            return
        if config.cuda_graphs:  # the profiler sees no operators in a graph
            run.prepare("reads its data again, for steps without a graph", cuda_graphs=False)
            run.compile(request.warm_up)
        parts = run.profile()
        if config.compile:
            run.prepare("reads its data again, for an eager step", compile=False)
        calls = run.count_calls()
        if runtime.is_leader:
            parts["figures"] = row["figures"] | _figures_of_calls(calls, timed.step_s, runtime.world)
            keep({**row, **parts, "calls": [asdict(group) for group in calls if group.device_s > 0]})


class _CellRun:
    """A trainee with its data, the function that runs its next step, and the device's lock."""

    trainee: Trainee[Any]
    step: Callable[[], dict[str, torch.Tensor]]

    def __init__(self, config: AnyConfig, runtime: Runtime, lock: DeviceLock, notify: Callable[[str], None]) -> None:
        self._config, self._runtime, self._lock, self._notify = config, runtime, lock, notify

    def prepare(self, line: str, **changes: Any) -> None:
        """Make a new trainee, with changed options; the earlier one is freed first, to save device memory."""
        self.__dict__.pop("trainee", None)
        self.__dict__.pop("step", None)
        gc.collect()
        self._notify(line)
        self._config = self._config.model_copy(update=changes)
        self.trainee = make_trainee(self._config, self._runtime)
        self.trainee.begin_phase(self._config.phase[0])
        self.step = make_stepper(self.trainee, self._config, self._runtime, 0)

    def compile(self, warm_up: int) -> int:
        """Run the first steps, which compile and so take longest, concurrently with other studies.

        Returns:
            The number of remaining warm-up steps, to be run while no other study uses the device.
        """
        settling = min(_SETTLING, warm_up)
        with self._lock.shared():
            self._notify("compiles")
            for _ in range(warm_up - settling):
                self.step()
            synchronise(self._runtime.device)
        return settling

    def profile(self) -> Row:
        """Return the ceilings and the operators of a few steps."""
        precision = self._config.precision
        with self._lock.exclusive():
            self._notify("is profiled")
            operators = top_operators(self.step, self._runtime.device, PROFILED_STEPS)
            ceilings = measure_ceilings(self._runtime.device, (precision,))
        return {
            "ceilings": {"bytes_per_s": ceilings.bytes_per_s, "flop_per_s": ceilings.flop_per_s[precision]},
            "operators": [asdict(operator) for operator in operators],
        }

    def count_calls(self) -> list[OperatorCalls]:
        """Count FLOPs and bytes in an eager step of the same precision.

        The profiler sees no operators in compiled code, which computes the same products. Bytes are the least that
        eager operators must move; compiled code fuses some and moves fewer.
        """
        with self._lock.exclusive():
            self._notify("counts an eager step's FLOPs")
            self.step()
            return trace_calls(self.step, self._runtime.device)


def _timed_row(cell: Cell, config: AnyConfig, runtime: Runtime, timed: TimedSteps, validation: dict[str, float]) -> Row:
    power_w = _add_over_processes(timed.sensors.get("mean_power_w"), runtime)
    return {
        "status": "done",
        "cell": asdict(cell),
        "device": torch.cuda.get_device_name(runtime.device) if runtime.device.type == "cuda" else "CPU",
        "torch": torch.__version__,
        "batch": config.phase[0].batch,
        "figures": _figures(timed, config, power_w) | validation,
        "losses": _subsample(timed.losses),
        "ceilings": None,
        "operators": [],
        "calls": [],
    }


def _add_over_processes(value: float | None, runtime: Runtime) -> float | None:
    if value is None or runtime.world == 1:
        return value
    summed = torch.tensor([value], device=runtime.device)
    runtime.average_over_processes([summed])
    return float(summed) * runtime.world


def _figures(timed: TimedSteps, config: AnyConfig, power_w: float | None) -> dict[str, Any]:
    """Return a cell's figures; those that were not measured are None."""
    batch, peak, last = config.phase[0].batch, timed.peak_memory_bytes, math.ceil(len(timed.losses) / 10)
    return {
        "step_ms": round(timed.step_s * 1e3, 3),
        "images_per_s": round(batch / timed.step_s, 3),
        "power_w": power_w,
        "energy_j_per_image": None if power_w is None else float(f"{power_w * timed.step_s / batch:.4g}"),
        "utilisation_percent": timed.sensors.get("mean_utilisation_percent"),
        "temperature_c": timed.sensors.get("highest_temperature_c"),
        "device_memory_gb": timed.sensors.get("highest_device_memory_gb"),
        "allocated_memory_gb": None if peak is None else round(peak / 1e9, 3),
        "loss": float(f"{mean(timed.losses[-last:]):.5g}"),
    }


def _figures_of_calls(calls: list[OperatorCalls], step_s: float, processes: int) -> dict[str, float]:
    """Return the figures that need an eager step's FLOPs and bytes."""
    flop, moved = (processes * sum(getattr(group, kind) for group in calls) for kind in ("flop", "bytes"))
    return {
        "gflop_per_step": round(flop / 1e9, 3),
        "gbyte_per_step": round(moved / 1e9, 4),
        "tflop_per_s": float(f"{flop / step_s / 1e12:.4g}"),
        "gbyte_per_s": float(f"{moved / step_s / 1e9:.4g}"),
    }


def _rounded(validation: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in validation.items()}


def _subsample(losses: list[float]) -> list[float]:
    """Return at most a hundred of the losses, evenly spread."""
    return [float(f"{value:.5g}") for value in losses[:: math.ceil(len(losses) / _LOSS_POINTS)]]
