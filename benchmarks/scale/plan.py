"""Plans the number of nodes for a p99 and the cost of a million pictures, simulated with measured service times.

    .venv/bin/python -m benchmarks.scale.plan [--kind pconv-h200] [--per-s 100,1000,10000] [--p99-ms 50,100,200]
        [--price 4.0] [--json FILE] [--plot FILE]

Finds for every rate, by bisection with the same arrivals, the smallest number of nodes (up to 1,000) with which p99 is
within the bound and at most 1 of 1,000 requests is refused. Then computes p99 and costs of 1 to 1,000 nodes at several
shares of their capacity. A simulation has `--requests` requests, or lasts for thirty full batches if these are more.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from benchmarks.harness.outputs import write_outputs
from benchmarks.scale.arrivals import Traffic
from benchmarks.scale.options import add_fleet_flags, fleet_of, run_once
from benchmarks.scale.service_times import measured_times

_MAX_NODES = 1000
_MAX_UNANSWERED = 0.001


def traffic_of(per_s: float, options: argparse.Namespace) -> Traffic:
    """Return traffic at a constant rate, with `--requests` requests but lasting for at least thirty full batches."""
    times = measured_times(options.kind)
    return Traffic(per_s, max(30 * times.batch_s(times.max_batch), options.requests / per_s))


def nodes_for(options: argparse.Namespace, per_s: float, p99_ms: float, max_nodes: int = _MAX_NODES) -> dict[str, Any]:
    """Find the smallest number of nodes that keeps p99 in the bound; `nodes` is None if `max_nodes` are too few."""
    traffic = traffic_of(per_s, options)

    def figures(nodes: int) -> dict[str, float]:
        return run_once(fleet_of(options, nodes), traffic, options.seed).figures(options.price)

    def kept(found: dict[str, float]) -> bool:
        return found["p99_ms"] <= p99_ms and found["unanswered_share"] <= _MAX_UNANSWERED

    low = max(1, math.floor(per_s / measured_times(options.kind).capacity_per_s))
    high = min(max_nodes, max(low + 1, math.ceil(1.5 * low)))
    best = figures(high)
    while not kept(best) and high < max_nodes:
        low, high = high + 1, min(max_nodes, 2 * high)
        best = figures(high)
    if not kept(best):
        return {"per_s": per_s, "bound_ms": p99_ms, "nodes": None}
    while low < high:
        middle = (low + high) // 2
        if kept(found := figures(middle)):
            high, best = middle, found
        else:
            low = middle + 1
    return {"per_s": per_s, "bound_ms": p99_ms, "nodes": high, **best}


def curve(options: argparse.Namespace, nodes: int, share: float) -> dict[str, Any]:
    """Simulate a number of nodes at a share of their capacity."""
    per_s = share * nodes * measured_times(options.kind).capacity_per_s
    found = run_once(fleet_of(options, nodes), traffic_of(per_s, options), options.seed)
    return {"nodes": nodes, "load": share, "per_s": per_s, **found.figures(options.price)}


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def plan(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Find the nodes for every rate and bound; prints each as soon as it is found."""
    print("| requests/s | bound of p99, ms | nodes | p50, p99, ms | load of a node | a million costs |")
    print("|---|---|---|---|---|---|")
    capacity, rows = measured_times(options.kind).capacity_per_s, []
    for per_s in _numbers(options.per_s):
        for bound_ms in _numbers(options.p99_ms):
            row = nodes_for(options, per_s, bound_ms)
            rows.append(row)
            if row["nodes"] is None:
                print(f"| {per_s:,.0f} | {bound_ms:g} | none up to {_MAX_NODES:,} | – | – | – |", flush=True)
                continue
            print(
                f"| {per_s:,.0f} | {bound_ms:g} | {row['nodes']:,} | {row['p50_ms']:.0f}, {row['p99_ms']:.0f} "
                f"| {per_s / capacity / row['nodes']:.2f} | {row['million_costs']:.3f} |",
                flush=True,
            )
    return rows


def curves(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Simulate every number of nodes at every load; prints each as soon as it is done."""
    print("\n| nodes | load | requests/s | p50, p99, ms | mean batch | refused | a million costs |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for nodes in map(int, _numbers(options.nodes)):
        for share in _numbers(options.loads):
            row = curve(options, nodes, share)
            rows.append(row)
            print(
                f"| {nodes:,} | {share:.2f} | {row['per_s']:,.0f} | {row['p50_ms']:.0f}, {row['p99_ms']:.0f} "
                f"| {row['mean_batch']:.1f} | {row['unanswered_share']:.4f} | {row['million_costs']:.3f} |",
                flush=True,
            )
    return rows


def draw(figures: dict[str, Any], path: Path) -> None:
    """Plot p99 over the load for each number of nodes, and costs over p99."""
    from matplotlib.figure import Figure  # noqa: PLC0415 -- only for --plot

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for nodes in sorted({row["nodes"] for row in figures["curves"]}):
        rows = [row for row in figures["curves"] if row["nodes"] == nodes]
        left.plot(
            [row["load"] for row in rows], [row["p99_ms"] for row in rows], marker="o", markersize=3, label=f"{nodes:,}"
        )
        right.plot([row["million_costs"] for row in rows], [row["p99_ms"] for row in rows], marker="o", markersize=3)
    left.set_xlabel("load: requests a second over the nodes' capacity", fontsize=8)
    right.set_xlabel("price of a million pictures at 1.00 for a node and hour", fontsize=8)
    left.legend(title="nodes", fontsize=7, title_fontsize=7)
    for axis in (left, right):
        axis.set_ylabel("p99, ms", fontsize=8)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}")
        axis.grid(alpha=0.3, which="both")
        axis.tick_params(labelsize=7, which="both")
    figure.suptitle(f"simulated: {figures['kind']}", fontsize=9)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Simulate, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_fleet_flags(parser)
    parser.add_argument(
        "--per-s", default="100,1000,10000,100000", help="rates to plan for in requests per second, separated by commas"
    )
    parser.add_argument(
        "--p99-ms", default="30,50,100", help="bounds for the p99 latency in milliseconds, separated by commas"
    )
    parser.add_argument(
        "--nodes", default="1,4,16,100,1000", help="numbers of nodes of the curves, separated by commas"
    )
    parser.add_argument(
        "--loads",
        default="0.3,0.5,0.7,0.8,0.9,0.95",
        help="fractions of the capacity of the curves, separated by commas",
    )
    parser.add_argument("--requests", type=int, default=40_000, help="minimum number of requests of each simulation")
    options = parser.parse_args()
    source = measured_times(options.kind).source
    print(f"{options.kind}: {source}\n")
    figures = {"kind": options.kind, "source": source, "plan": plan(options), "curves": curves(options)}
    write_outputs(options, figures, draw)


if __name__ == "__main__":
    main()
