"""Draws docker/grafana's dashboard from a running Prometheus, without Grafana.

    .venv/bin/python -m benchmarks.harness.dashboard --prometheus http://127.0.0.1:9090 --minutes 10 -o dashboard.png

Panels have the positions and the queries of Grafana's; matplotlib draws them.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import httpx
import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

DASHBOARD = Path(__file__).resolve().parents[2] / "docker/grafana/dashboards/retouch.json"
STEP_S = 5
STAGE = "infer"
Series = list[dict[str, Any]]


def query(prometheus: str, expression: str, minutes: float) -> Series:
    """Run a panel's query over the last minutes, with Grafana's variables replaced."""
    for variable, value in (("$__rate_interval", "30s"), ("$instance", ".*"), ("$stage", STAGE)):
        expression = expression.replace(variable, value)
    now = time.time()
    params = {"query": expression, "start": str(now - minutes * 60), "end": str(now), "step": str(STEP_S)}
    reply = httpx.get(f"{prometheus}/api/v1/query_range", params=params).json()
    assert reply["status"] == "success", reply
    found: Series = reply["data"]["result"]
    return found


def points(series: dict[str, Any]) -> tuple[list[datetime], list[float]]:
    """Return the times and values of a series."""
    times = [datetime.fromtimestamp(at, timezone.utc) for at, _ in series["values"]]
    return times, [float(value) for _, value in series["values"]]


def name_of(series: dict[str, Any], legend: str) -> str:
    """Fill in the legend's format."""
    for label, value in series["metric"].items():
        legend = legend.replace("{{" + label + "}}", value)
    return legend


def draw_lines(axes: Axes, panel: dict[str, Any], found: list[Series]) -> None:
    """Draw lines, or a stack of areas."""
    stacked = "stacking" in panel["fieldConfig"]["defaults"].get("custom", {})
    labelled = [
        (name_of(series, target["legendFormat"]), points(series))
        for target, result in zip(panel["targets"], found, strict=True)
        for series in result
    ]
    if stacked:
        times = max((line[0] for _, line in labelled), key=len)
        values = [[dict(zip(line[0], line[1], strict=True)).get(at, 0.0) for at in times] for _, line in labelled]
        axes.stackplot(times, np.nan_to_num(values), labels=[label for label, _ in labelled], alpha=0.7)
    else:
        for label, (times, values) in labelled:  # type: ignore[assignment]
            axes.plot(times, values, label=label, linewidth=1)
    axes.set_ylim(bottom=0)
    if any(label for label, _ in labelled):
        axes.legend(fontsize=5, ncols=3, loc="upper left", framealpha=0.6)


def draw_heatmap(axes: Axes, result: Series) -> None:
    """Draw buckets over time; Prometheus' buckets are cumulative, so the next lower one is subtracted from each."""
    result = sorted(result, key=lambda series: float(series["metric"]["le"]))
    times = points(max(result, key=lambda series: len(series["values"])))[0]
    rows = np.array([[dict(zip(*points(series), strict=True)).get(at, 0.0) for at in times] for series in result])
    counts = np.diff(np.nan_to_num(rows), axis=0, prepend=0)
    edges = [float(series["metric"]["le"]) for series in result]
    edges[-1] = edges[-2] * 2 if math.isinf(edges[-1]) else edges[-1]
    mesh_edges = [edges[0] / 2, *edges]
    axes.pcolormesh(times, mesh_edges[:-1], np.ma.masked_less_equal(counts, 0), cmap="Oranges", norm=LogNorm())
    axes.set_yscale("log")
    shown = [low for low, row in zip(mesh_edges, counts, strict=False) if row.any()]
    axes.set_ylim(min(shown) / 2, max(shown) * 2)


def draw(axes: Axes, panel: dict[str, Any], found: list[Series]) -> None:
    """Draw one panel, or a note that it has no data."""
    unit = panel["fieldConfig"]["defaults"].get("unit") or panel["options"]["yAxis"]["unit"]
    axes.set_title(f"{panel['title'].replace('$stage', STAGE)}  [{unit}]", fontsize=7, loc="left")
    axes.tick_params(labelsize=5)
    if not any(found):
        axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes, fontsize=8, color="grey")
        axes.set(xticks=[], yticks=[])
    elif panel["type"] == "stat":
        value = [value for value in points(found[0][0])[1] if not math.isnan(value)][-1]
        axes.text(0.5, 0.5, f"{value:.3g}", ha="center", va="center", transform=axes.transAxes, fontsize=16)
        axes.set(xticks=[], yticks=[])
    elif panel["type"] == "heatmap":
        draw_heatmap(axes, found[0])
    else:
        draw_lines(axes, panel, found)
    if axes.get_xticks().size:
        axes.xaxis.set_major_formatter(mpl.dates.DateFormatter("%H:%M"))  # type: ignore[attr-defined]


def main() -> None:
    """Draw all panels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090", help="address of Prometheus")
    parser.add_argument("--minutes", type=float, default=10, help="minutes up to now that are drawn")
    parser.add_argument("-o", "--out", type=Path, default=Path("dashboard.png"), help="file for the picture")
    options = parser.parse_args()
    mpl.use("Agg")
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = plt.figure(figsize=(14, height / 3.6))
    grid = figure.add_gridspec(height, 24, hspace=6.5, wspace=3.0, left=0.03, right=0.985, top=0.96, bottom=0.01)
    figure.suptitle(
        "The dashboard's queries against Prometheus, drawn with matplotlib (not a picture of Grafana)", size=9
    )
    for panel in panels:
        place = panel["gridPos"]
        cell = grid[place["y"] : place["y"] + place["h"], place["x"] : place["x"] + place["w"]]
        axes = figure.add_subplot(cell)
        if panel["type"] == "row":
            axes.axis("off")
            axes.text(0, 0, panel["title"], fontsize=8, weight="bold")
            continue
        draw(axes, panel, [query(options.prometheus, target["expr"], options.minutes) for target in panel["targets"]])
    figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
