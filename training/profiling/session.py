"""Runs one profile: the precisions one after another on one device, its limits, JSON, tables and the roofline plot."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from engines.files.outputs import check_output
from training.config import AnyConfig, Precision
from training.loop.runtime import start_runtime
from training.profiling.ceilings import Ceilings, measure_ceilings
from training.profiling.roofline import draw_roofline
from training.profiling.stepping import StepFigures, measure_steps

_COLUMNS = {
    "step_ms": "ms",
    "images_per_s": "img/s",
    "tflop_per_s": "TFLOP/s",
    "peak_memory_gb": "GB",
    "mean_power_w": "W",
    "mean_utilisation_percent": "busy %",
    "highest_temperature_c": "°C",
}
_PICTURES = 512
"""Pictures that are read: enough for some steps. A whole data set would take longer to decode than the profile."""


@dataclass(frozen=True)
class ProfileRequest:
    """The request for a profile: steps of one phase of a config."""

    config: AnyConfig
    output: Path
    precisions: tuple[Precision, ...]
    steps: int = 20
    phase: int = 0
    compiled: bool = False
    device: str | None = None


@dataclass(frozen=True)
class Profile:
    """The result of a profile: report and figures."""

    report: dict[str, Any]
    figures: list[StepFigures]


def run_profile(request: ProfileRequest, notify: Callable[[str], None] = lambda _step: None) -> Profile:
    """Profile, and write profile.json and roofline.png into the output folder.

    Raises:
        TrainingError: the config's data cannot be used.
        OSError: the output cannot be written; this is checked before anything is measured.
    """
    check_output(request.output / "profile.json")
    data = request.config.data
    limited = data.model_copy(update={"limit": min(data.limit or _PICTURES, _PICTURES), "validation": None})
    changes = {"data": limited, "compile": request.compiled}
    changes["cuda_graphs"] = False  # a graph's kernels have no operators
    config = request.config.model_copy(update=changes)
    with start_runtime(config, request.device) as runtime:
        device = runtime.device
    notify(f"measuring the limits of {_device_name(device)}")
    ceilings = measure_ceilings(device, request.precisions)
    figures = []
    for precision in request.precisions:
        notify(f"{request.steps} steps in {precision}")
        figures.append(measure_steps(config, precision, request.device, request.phase, request.steps))
    report = _make_report(config, request, device, ceilings, figures)
    (request.output / "profile.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    if not request.compiled:
        draw_roofline(
            request.output / "roofline.png", f"{config.model} training step, {_device_name(device)}", ceilings, figures
        )
    return Profile(report, figures)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _make_report(
    config: AnyConfig, request: ProfileRequest, device: torch.device, ceilings: Ceilings, figures: list[StepFigures]
) -> dict[str, Any]:
    return {
        "device": _device_name(device),
        "torch": torch.__version__,
        "model": config.model,
        "generator": config.generator.model_dump(),
        "phase": config.phase[request.phase].model_dump(),
        "channels_last": config.channels_last,
        "compile": request.compiled,
        "ceilings": {
            "copy_gb_per_s": round(ceilings.bytes_per_s / 1e9, 1),
            **{f"{name}_tflop_per_s": float(f"{top / 1e12:.3g}") for name, top in ceilings.flop_per_s.items()},
        },
        "precisions": {found.precision: found.as_json() for found in figures},
    }


def steps_table(report: dict[str, Any]) -> Table:
    """Make a table with a row for each precision."""
    shown = Table(title=f"{report['model']}, batch {report['phase']['batch']}, {report['device']}")
    for title in ("", "speed-up", "of ceiling", *_COLUMNS.values()):
        shown.add_column(title, justify="right")
    first = next(iter(report["precisions"].values()))["step_ms"]
    for precision, row in report["precisions"].items():
        ceiling = report["ceilings"][f"{precision}_tflop_per_s"]
        share = f"{row['tflop_per_s'] / ceiling:.0%}" if row["tflop_per_s"] and ceiling else "-"
        values = (f"{row[name]:.4g}" if row.get(name) is not None else "-" for name in _COLUMNS)
        shown.add_row(precision, f"{first / row['step_ms']:.2f}×", share, *values)
    return shown


def operators_table(found: StepFigures) -> Table:
    """Make a table of the operators with the most self time on the device."""
    shown = Table(title=f"{found.precision}: operators by their own device time")
    for column in ("operator", "calls", "ms", "share"):
        shown.add_column(column, justify="left" if column == "operator" else "right")
    for row in found.operators[:12]:
        shown.add_row(row.name, str(row.calls), f"{row.device_s * 1e3:.2f}", f"{row.share:.1%}")
    return shown
