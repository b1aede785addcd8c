"""Plots of the runs: latency percentiles and throughput over the load."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from retouch.bench.report import PERCENTILES, Mode, RunReport

_LABELS: dict[Mode, str] = {"open": "requests due per second", "closed": "clients"}


def save_plot(reports: list[RunReport], path: Path, title: str) -> None:
    """Write a plot in the format of the suffix: one row for open and one for closed loops.

    Raises:
        OSError, ValueError: the file cannot be written, or its suffix is not a known format.
    """
    modes = [mode for mode in _LABELS if any(report.mode == mode for report in reports)]
    figure = Figure(figsize=(11, 4.2 * len(modes)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for row, mode in zip(figure.subplots(len(modes), 2, squeeze=False), modes, strict=True):
        runs = sorted((report for report in reports if report.mode == mode), key=lambda report: report.level)
        _plot_latency(row[0], runs, mode)
        _plot_throughput(row[1], runs, mode)
    figure.savefig(path, dpi=120)


def _plot_latency(axes: Axes, runs: list[RunReport], mode: Mode) -> None:
    answered = [run for run in runs if run.latency_ms]
    for name in PERCENTILES:
        axes.plot([run.level for run in answered], [run.latency_ms[name] for run in answered], marker="o", label=name)
    axes.set(xlabel=_LABELS[mode], ylabel="latency from the due time, ms", title=f"Latency, {mode} loop")
    if answered:
        axes.set_yscale("log")
        for axis_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            axis_formatter(StrMethodFormatter("{x:g}"))
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()


def _plot_throughput(axes: Axes, runs: list[RunReport], mode: Mode) -> None:
    levels = [run.level for run in runs]
    axes.plot(levels, [run.ok_per_s for run in runs], marker="o", label="answered")
    if mode == "open":
        axes.plot(levels, [run.sent_per_s for run in runs], linestyle=":", color="grey", label="sent")
    failed = [sum(run.errors.values()) / run.elapsed_s if run.elapsed_s else 0.0 for run in runs]
    if any(failed):
        axes.plot(levels, failed, marker="x", color="tab:red", label="errors")
    axes.set(xlabel=_LABELS[mode], ylabel="per second", title=f"Throughput, {mode} loop")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
