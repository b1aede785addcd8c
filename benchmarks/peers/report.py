"""The report of `side_by_side.py`: medians, tables and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
"""The figures of one part in one round."""


def medians(rounds: Sequence[dict[str, Figures]]) -> dict[str, Figures]:
    """Return the median of each figure over the rounds that have its part; for flags and None the last value."""
    merged: dict[str, Figures] = {}
    for part in {part: None for figures in rounds for part in figures}:
        values = [figures[part] for figures in rounds if part in figures]
        merged[part] = {name: _median([value[name] for value in values]) for name in values[-1]}
    return merged


def _median(values: Sequence[Any]) -> Any:
    if any(value is None or isinstance(value, bool) for value in values):
        return values[-1]
    return statistics.median(values)


def table(figures: dict[str, Any]) -> str:
    """Format the machine and, for each model, the medians and the values of the rounds as Markdown."""
    machine = figures["machine"]
    lines = [f"\n{machine['processor']} ({', '.join(machine['features'])}), {machine['cores']} cores"]
    for model, measured in figures["models"].items():
        contenders, loads = measured["contenders"], measured["load"]
        parts = [part for part in _COLUMNS if any(part in side["medians"] for side in contenders.values())]
        heads = ["", *(_COLUMNS[part][0] for part in parts)]
        alone = f"engine alone {measured['engine_alone_per_s']:.1f}/s"
        lines.append(f"\n`{model}`, {alone}, load {min(loads)} to {max(loads)}, medians:\n")
        lines += [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        lines += [f"| {name} | {' | '.join(_cells(side['medians'], parts))} |" for name, side in contenders.items()]
        lines.append("\nThe rounds:\n")
        for name, side in contenders.items():
            for part in (part for part in parts if part in side["medians"]):
                cells = [_cell(part, one[part]) for one in side["rounds"] if part in one]
                lines.append(f"- {name}, {_COLUMNS[part][0]}: {'; '.join(cells)}")
    return "\n".join(lines)


def _cells(figure: dict[str, Figures], parts: Sequence[str]) -> list[str]:
    return [_cell(part, figure[part]) if part in figure else "–" for part in parts]


def _cell(part: str, figure: Figures) -> str:
    return _COLUMNS[part][1](figure)


def _latency(figure: Figures) -> str:
    return f"{figure['p50_ms']:.1f} / {figure['p99_ms']:.0f}"


def _throughput(figure: Figures) -> str:
    return f"{figure['per_s']:.1f}" + (f" ({figure['failed']:.0f} failed)" if figure["failed"] else "")


def _abandoned(figure: Figures) -> str:
    return "–" if figure["computed"] is None else f"{figure['computed']:g} of {figure['sent']:g}"


def _burst(burst: Figures) -> str:
    parts = [f"{burst['ok']:g} ok"]
    parts += [f"{burst['refused_with_retry_after']:g} with Retry-After"] if burst["refused_with_retry_after"] else []
    parts += [f"{burst['failed']:g} failed"] if burst["failed"] else []
    parts += [f"{burst['unanswered']:g} unanswered"] if burst["unanswered"] else []
    return ", ".join(parts) + ("" if burst["works_after"] else "; dead afterwards")


def _drained(figure: Figures) -> str:
    return f"{figure['answered']:g} of {figure['in_flight']:g}, {figure['ended_after_s']} s"


_COLUMNS: dict[str, tuple[str, Callable[[Figures], str]]] = {
    "at_100": ("p50 / p99 at 100/s, ms", _latency),
    "at_25": ("p50 / p99 at 25 %, ms", _latency),
    "at_50": ("p50 / p99 at 50 %, ms", _latency),
    "at_75": ("p50 / p99 at 75 %, ms", _latency),
    "concurrency_32": ("concurrency 32, /s", _throughput),
    "knee": ("knee, /s", lambda figure: f"{figure['per_s']:.0f}"),
    "abandoned": ("abandoned, computed", _abandoned),
    "burst": ("burst of 2,000", _burst),
    "sigterm": ("SIGTERM, 64 inside", _drained),
}


def draw(figures: dict[str, Any], path: Path) -> None:
    """Plot throughput at concurrency 32 and p50 at half the engine's capacity, a row per model."""
    from matplotlib.figure import Figure  # noqa: PLC0415 -- only for --plot

    models = figures["models"]
    figure = Figure(figsize=(11, 3.2 * len(models)), layout="constrained")
    axes = figure.subplots(len(models), 2, squeeze=False)
    for (left, right), (model, measured) in zip(axes, models.items(), strict=True):
        names = list(measured["contenders"])
        compared = [measured["contenders"][name]["medians"] for name in names]
        colours = ["#2a6f97" if name.startswith("retouch") else "#b8b8b8" for name in names]
        rates = [side["concurrency_32"]["per_s"] for side in compared]
        left.barh(names, rates, color=colours)
        left.axvline(measured["engine_alone_per_s"], color="black", linewidth=1, linestyle=":")
        left.set_title(f"{model}: pictures/s at concurrency 32 (dotted: engine alone)", fontsize=9)
        latencies = [side["at_50"]["p50_ms"] for side in compared]
        right.barh(names, latencies, color=colours)
        right.set_xscale("log")
        right.set_title(f"{model}: p50 in ms at half of the engine's capacity", fontsize=9)
        for axis in (left, right):
            axis.invert_yaxis()
            axis.tick_params(labelsize=8)
    figure.savefig(path, dpi=110)
