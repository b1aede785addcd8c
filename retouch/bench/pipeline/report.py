"""Reports of the pipeline variants: a table and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from engines.terminal.tables import print_table
from retouch.bench.pipeline.run import VariantResult


def print_rows(rows: Sequence[VariantResult], console: Console, title: str) -> None:
    """Print one row for each variant, and the reason for each variant that could not be measured."""
    table = Table(title=title, title_justify="left")
    for column in ("variant", "total ms", "on disk ms", "images/s", "× first", "p50 ms", "batch", "GPU busy"):
        table.add_column(column, justify="left" if column == "variant" else "right", no_wrap=column == "variant")
    first = next((row for row in rows if not row.reason), None)
    for row in rows:
        if row.reason or first is None:
            table.add_row(row.name, *["–"] * 7)
            continue
        table.add_row(
            row.name,
            f"{row.total_ms:.1f}",
            f"{row.durable_ms:.1f}",
            f"{row.images_per_s:.1f}",
            f"{first.total_ms / row.total_ms:.2f}",
            f"{row.p50_ms:.1f}",
            f"{row.pictures / row.batches:.1f}",
            "–" if row.gpu_busy is None else f"{row.gpu_busy:.0%}",
        )
    print_table(table, console)
    for row in rows:
        if row.reason:
            console.print(f"{row.name}: not available: {row.reason}", highlight=False, markup=False, soft_wrap=True)


def save_rows_plot(rows: Sequence[VariantResult], path: Path, title: str) -> None:
    """Plot the total time of each variant as a bar, labelled with images/s.

    Raises:
        OSError, ValueError: the file cannot be written, or its suffix is not a known format.
    """
    measured = [row for row in rows if not row.reason]
    figure = Figure(figsize=(9, 1.2 + 0.55 * len(measured)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    names = [row.name for row in measured]
    bars = axes.barh(names, [row.total_ms for row in measured], label="last reply")
    axes.barh(
        names,
        [max(0.0, row.durable_ms - row.total_ms) for row in measured],
        left=[row.total_ms for row in measured],
        color="tab:orange",
        alpha=0.5,
        label="last file on the disk",
    )
    labels = [
        f" {row.images_per_s:.0f} images/s" + ("" if row.gpu_busy is None else f", GPU {row.gpu_busy:.0%}")
        for row in measured
    ]
    axes.bar_label(bars, labels, label_type="edge", fontsize=8)
    axes.set(xlabel="ms", title=title)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
