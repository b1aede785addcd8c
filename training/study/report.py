"""The report of a study: study.json, study.md and roofline.png, from the cells that were measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.profiling.ceilings import Ceilings
from training.profiling.operators import OperatorCalls
from training.profiling.roofline import draw_roofline
from training.profiling.stepping import StepFigures
from training.study.cells import BASELINE
from training.study.measuring import Row
from training.study.sources import Published, Study

_NOT_MEASURED = "not measured"
_COLUMNS = {
    "ms a step": ("step_ms", "{:.4g}"),
    "images/s": ("images_per_s", "{:.4g}"),
    "speed-up": ("speed_up", "{:.2f}×"),
    "TFLOP/s": ("tflop_per_s", "{:.3g}"),
    "of the ceiling": ("of_ceiling", "{:.0%}"),
    "GB/s, estimated": ("gbyte_per_s", "{:.3g}"),
    "W": ("power_w", "{:.0f}"),
    "J an image": ("energy_j_per_image", "{:.3g}"),
    "busy, %": ("utilisation_percent", "{:.0f}"),
    "°C": ("temperature_c", "{:.0f}"),
    "device memory, GB": ("device_memory_gb", "{:.2f}"),
    "peak allocated, GB": ("allocated_memory_gb", "{:.2f}"),
    "loss": ("loss", "{:.5g}"),
    "PSNR, dB": ("validation_psnr_db", "{:.2f}"),
    "SSIM": ("validation_ssim", "{:.4f}"),
}
_OPERATORS = 12


def write_report(study: Study, rows: dict[str, Row], output: Path) -> None:
    """Write study.json, study.md and, once the baseline and another cell are measured, roofline.png."""
    compared = {name: _with_ratios(row, rows.get(BASELINE)) for name, row in rows.items()}
    before, after = _before_and_after(compared)
    report = {
        "model": study.model,
        "published": [vars(figure) for figure in study.published],
        "cells": {name: {key: row[key] for key in row if key != "calls"} for name, row in compared.items()},
    }
    (output / "study.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    drawn = before is not None and after is not None
    if before is not None and after is not None:
        _draw(output / "roofline.png", study, {name: compared[name] for name in (before, after)})
    (output / "study.md").write_text(make_markdown(study, compared, has_roofline=drawn), "utf-8")


def _with_ratios(row: Row, base: Row | None) -> Row:
    """Add a cell's figures relative to the baseline and to its ceiling; None where either was not measured."""
    if row["status"] != "done":
        return row
    figures = row["figures"]
    known = base is not None and base["status"] == "done"
    speed_up = figures["images_per_s"] / base["figures"]["images_per_s"] if base is not None and known else None
    of_ceiling = None
    if row["ceilings"] is not None:
        of_ceiling = round(figures["tflop_per_s"] * 1e12 / row["ceilings"]["flop_per_s"] / row["cell"]["gpus"], 4)
    more = {"speed_up": speed_up and round(speed_up, 3), "of_ceiling": of_ceiling}
    return {**row, "figures": {**figures, **more}}


def _before_and_after(rows: dict[str, Row]) -> tuple[str | None, str | None]:
    """Return the names of the baseline and of the fastest other cell on one GPU, if profiled; None without one."""
    done = {name: row for name, row in rows.items() if row["status"] == "done" and row["cell"]["gpus"] == 1}
    done = {name: row for name, row in done.items() if row["ceilings"]}
    others = [name for name in done if name != BASELINE]
    after = max(others, key=lambda name: float(done[name]["figures"]["images_per_s"]), default=None)
    return (BASELINE if BASELINE in done else None), after


def make_markdown(study: Study, rows: dict[str, Row], *, has_roofline: bool) -> str:
    """Return the report as Markdown: cells, the source's figures, operators of each cell, how it was measured."""
    done = [row for row in rows.values() if row["status"] == "done"]
    where = ", ".join(dict.fromkeys(f"{row['device']}, torch {row['torch']}" for row in done)) or _NOT_MEASURED
    parts = [f"# {study.model}: training in several precisions\n\nMeasured on: {where}.", _cells_table(rows)]
    parts += [f"{name}: {row['status']}: {row['reason']}." for name, row in rows.items() if row["status"] != "done"]
    parts += ["## Figures of the source", _published_table(study.published, done)]
    if has_roofline:
        parts += ["## Roofline, before and after", "![Roofline](roofline.png)"]
    for name, row in rows.items():
        if row["status"] == "done" and row["operators"]:
            parts += [f"## Operators: {name}", _operators_table(row["operators"])]
    return "\n\n".join([*parts, "## How it was measured", _METHOD]) + "\n"


_METHOD = """Every cell begins with the same random weights, sees the same crops in the same order, and runs in its
own process. Loss: the mean over the last tenth of the timed steps. PSNR and SSIM: of the averaged weights after
them, on the config's validation pictures. FLOPs are counted by torch.utils.flop_counter's formulas in an
eager step; bytes are an estimate: every operator of that step reads its inputs once and writes its outputs once.
Compiled code fuses operators and moves less than that. The ceiling is a product of square matrices in the same
precision on the same device. Power (of all GPUs together), busy time, temperature and device memory are NVML's, of the
timed steps."""


def _table_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells_table(rows: dict[str, Row]) -> str:
    lines = [_table_row(["cell", "batch", *_COLUMNS]), _table_row(["---"] * (len(_COLUMNS) + 2))]
    for name, row in rows.items():
        if row["status"] != "done":
            lines.append(_table_row([name, row["status"], *[""] * len(_COLUMNS)]))
            continue
        shown = [_format_figure(row["figures"].get(key), how) for key, how in _COLUMNS.values()]
        same = name == row["cell"]["name"] and name != "best-2gpu"
        title = name if same else f"{name} ({row['cell']['precision']}{', compiled' * row['cell']['compiled']})"
        lines.append(_table_row([title, str(row["batch"]), *shown]))
    return "\n".join(lines)


def _format_figure(value: float | None, how: str) -> str:
    return _NOT_MEASURED if value is None else how.format(value)


def _published_table(published: Sequence[Published], done: Sequence[Row]) -> str:
    if not published:
        return "No figure of this net's training was published by the sources."
    lines = [_table_row(["what", "device", "speed-up", "change of power", "source"]), _table_row(["---"] * 5)]
    for figure in published:
        speed, power = _format_figure(figure.speed_up, "{:.2f}×"), _format_figure(figure.power_percent, "{:+.2f} %")
        stated = [what if what != _NOT_MEASURED else "not stated" for what in (speed, power)]
        lines.append(_table_row([figure.what, figure.device, *stated, figure.source]))
    others = [row for row in done if row["cell"]["name"] != BASELINE and row["figures"]["speed_up"]]
    if others:
        best = max(others, key=lambda row: float(row["figures"]["speed_up"]))
        speed = _format_figure(best["figures"]["speed_up"], "{:.2f}×")
        here = [f"here: {best['cell']['name']}", best["device"], speed, _power_change(best, done), "this report"]
        lines.append(_table_row(here))
    return "\n".join(lines)


def _power_change(row: Row, done: Sequence[Row]) -> str:
    base = next((each["figures"]["power_w"] for each in done if each["cell"]["name"] == BASELINE), None)
    power = row["figures"]["power_w"]
    return _NOT_MEASURED if not base or not power else f"{100 * (power / base - 1):+.2f} %"


def _operators_table(operators: Sequence[dict[str, Any]]) -> str:
    head = ["operator", "calls", "self CPU, ms", "CPU, ms", "self on the device, ms", "share", "memory, MB"]
    lines = [_table_row(head), _table_row(["---"] * len(head))]
    for row in operators[:_OPERATORS]:
        times = [f"{row[key] * 1e3:.3f}" for key in ("self_cpu_s", "cpu_s", "device_s")]
        name = str(row["name"]).replace("|", "\\|")
        lines.append(
            _table_row([name, str(row["calls"]), *times, f"{row['share']:.1%}", f"{row['memory_bytes'] / 1e6:.2f}"])
        )
    return "\n".join(lines)


def _draw(path: Path, study: Study, rows: dict[str, Row]) -> None:
    first = next(iter(rows.values()))
    tops = {row["cell"]["precision"]: row["ceilings"]["flop_per_s"] for row in rows.values()}
    ceilings = Ceilings(first["ceilings"]["bytes_per_s"], tops)
    figures = [
        StepFigures(
            precision=row["cell"]["precision"],
            step_s=row["figures"]["step_ms"] / 1e3,
            images_per_s=row["figures"]["images_per_s"],
            peak_memory_bytes=None,
            sensors={},
            operators=[],
            calls=[OperatorCalls(**group) for group in row["calls"]],
            label=name,
        )
        for name, row in rows.items()
    ]
    draw_roofline(path, f"{study.model} training step, {first['device']}", ceilings, figures)
