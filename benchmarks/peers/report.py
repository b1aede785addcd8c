"""The comparison as a table and as a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LOADS = ("at_100", "at_25%", "at_50%", "at_75%")


def table(figures: dict[str, Any]) -> str:
    """Format Markdown, one table per model."""
    lines: list[str] = []
    for model, measured in figures.items():
        seen = measured["contenders"]
        loads = [load for load in LOADS if any(load in figure for figure in seen.values())]
        heads = [f"p50 / p99 {load.replace('at_', 'at ')}, ms" for load in loads]
        lines += [f"\n`{model}`, engine alone {measured['engine_alone_per_s']:.1f}/s:\n"]
        columns = [
            "",
            *heads,
            "knee /s",
            "concurrency 32 /s",
            "abandoned computed",
            "burst of 2,000",
            "SIGTERM, 64 inside",
        ]
        lines += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [f"| {' | '.join(_row(name, figure, loads))} |" for name, figure in seen.items()]
    return "\n".join(lines)


def _row(name: str, figure: dict[str, Any], loads: list[str]) -> list[str]:
    cells = [f"{figure[load]['p50_ms']:.1f} / {figure[load]['p99_ms']:.0f}" for load in loads]
    abandoned = figure.get("abandoned_computed")
    burst, sigterm = figure.get("burst"), figure.get("sigterm")
    return [
        name,
        *cells,
        f"{figure['knee_per_s']:.0f}" if "knee_per_s" in figure else "–",
        f"{figure['concurrency_32']['per_s']:.1f}",
        "–" if abandoned is None else f"{abandoned} of {figure['abandoned']}",
        _burst(burst) if burst else "–",
        f"{sigterm['answered']} of {sigterm['in_flight']}, {sigterm['ended_after_s']} s" if sigterm else "–",
    ]


def _burst(burst: dict[str, Any]) -> str:
    parts = [f"{burst['ok']} ok"]
    parts += [f"{burst['refused_with_retry_after']} with Retry-After"] if burst["refused_with_retry_after"] else []
    parts += [f"{burst['failed']} failed"] if burst["failed"] else []
    parts += [f"{burst['unanswered']} unanswered"] if burst["unanswered"] else []
    return ", ".join(parts) + ("" if burst["works_after"] else "; dead afterwards")


def draw(figures: dict[str, Any], path: Path) -> None:
    """Plot throughput at concurrency 32 and p50 at half the engine's capacity, a row per model."""
    from matplotlib.figure import Figure  # noqa: PLC0415 -- only for --plot

    figure = Figure(figsize=(11, 3.2 * len(figures)), layout="constrained")
    axes = figure.subplots(len(figures), 2, squeeze=False)
    for (left, right), (model, measured) in zip(axes, figures.items(), strict=True):
        names = list(measured["contenders"])
        colours = ["#2a6f97" if name.startswith("retouch") else "#b8b8b8" for name in names]
        rates = [measured["contenders"][name]["concurrency_32"]["per_s"] for name in names]
        left.barh(names, rates, color=colours)
        left.axvline(measured["engine_alone_per_s"], color="black", linewidth=1, linestyle=":")
        left.set_title(f"{model}: pictures/s at concurrency 32 (dotted: engine alone)", fontsize=9)
        latencies = [measured["contenders"][name]["at_50%"]["p50_ms"] for name in names]
        right.barh(names, latencies, color=colours)
        right.set_xscale("log")
        right.set_title(f"{model}: p50 in ms at half of the engine's capacity", fontsize=9)
        for axis in (left, right):
            axis.invert_yaxis()
            axis.tick_params(labelsize=8)
    figure.savefig(path, dpi=110)
