"""The reports as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engines.terminal.tables import print_table
from retouch.bench.report import PERCENTILES, RunReport

_LATE_MS = 5.0


def print_reports(reports: list[RunReport], console: Console) -> None:
    """Print latency and throughput, then time by stage, then batch sizes, errors and warnings if there are any."""
    print_table(_latency_table(reports), console)
    stages = list(dict.fromkeys(stage for report in reports for stage in report.stages))
    if stages:
        print_table(_stage_table(reports, stages), console)
    for report in reports:
        for note in _notes_on_run(report):
            console.print(f"{_run_label(report)}: {note}", highlight=False, markup=False)


def _run_label(report: RunReport) -> str:
    return f"{report.level:g} req/s" if report.mode == "open" else f"{report.level:g} clients"


def _format_ms(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _latency_table(reports: Iterable[RunReport]) -> Table:
    columns = [*PERCENTILES, "max"]
    table = Table(title="Latency in ms, from the due time")
    for heading in ("load", "sent", "ok", "ok/s", *columns):
        table.add_column(heading, justify="right", no_wrap=heading == "load")
    for report in reports:
        latencies = (_format_ms(report.latency_ms[name]) if report.latency_ms else "–" for name in columns)
        table.add_row(_run_label(report), str(report.requests), str(report.ok), f"{report.ok_per_s:.1f}", *latencies)
    return table


def _stage_table(reports: Iterable[RunReport], stages: list[str]) -> Table:
    table = Table(title="Mean (p99) of each stage in ms, by the server's account")
    for heading in ("load", *stages):
        table.add_column(escape(heading), justify="right", no_wrap=heading == "load")
    for report in reports:
        times = (report.stages.get(stage) for stage in stages)
        table.add_row(
            _run_label(report), *(f"{_format_ms(t.mean_ms)} ({_format_ms(t.p99_ms)})" if t else "–" for t in times)
        )
    return table


def _notes_on_run(report: RunReport) -> list[str]:
    notes = []
    if report.batch_sizes:
        total = sum(report.batch_sizes.values())
        shares = (f"{size}: {count / total:.0%}" for size, count in report.batch_sizes.items())
        notes.append(f"batch sizes {', '.join(shares)}")
    if report.errors:
        notes.append("errors " + ", ".join(f"{name}: {count}" for name, count in report.errors.items()))
    if report.send_lag_p99_ms > _LATE_MS:
        notes.append(
            f"the load generator was {report.send_lag_p99_ms:.1f} ms late (p99): this machine is too busy to measure"
        )
    return notes
