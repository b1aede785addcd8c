"""Simulates a day of a fleet that scales: a daily wave, a burst, a client that floods the fleet, nodes that fail.

    .venv/bin/python -m benchmarks.scale.day [--kind photos-cpu] [--mean-nodes 10] [--day-s 3600] [--fixed]
        [--json FILE] [--plot FILE]

The wave's mean rate is that of `--mean-nodes` nodes at 60 % load; its peak is 1.8 times as high. At 30 % of the day the
rate doubles for a twentieth of the day; at 60 % one client sends as much as all others together for the same time. Each
node fails once a day on average. Scaling is harder in a day of one hour than in a real one. `--fixed` also simulates a
fleet that always has enough nodes for the peak.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness.outputs import write_outputs
from benchmarks.scale.arrivals import Traffic
from benchmarks.scale.options import add_fleet_flags, fleet_of, run_once
from benchmarks.scale.outcome import Outcome
from benchmarks.scale.scaling import Failures, Scaling

_LOAD = 0.6
_WAVE = 0.8
_STEPS = 120


def traffic_of(options: argparse.Namespace) -> Traffic:
    """Return the day's traffic."""
    day_s = options.day_s
    base = _LOAD * options.mean_nodes * fleet_of(options, 1).times.capacity_per_s
    span = day_s / 20
    return Traffic(
        base,
        day_s,
        wave=_WAVE,
        day_s=day_s,
        bursts=((0.3 * day_s, 0.3 * day_s + span, 2.0),),
        flood=(0.6 * day_s, 0.6 * day_s + span, base * (1 + _WAVE)),
    )


def simulate(options: argparse.Namespace, *, scales: bool) -> Outcome:
    """Simulate the day with a fleet that scales, or with a constant number of nodes, enough for the peak."""
    peak = round(options.mean_nodes * (1 + _WAVE))
    fleet = replace(
        fleet_of(options, max(1, options.mean_nodes // 4) if scales else peak),
        deadline_s=options.deadline_s,
        repeats=1,
        failures=Failures(options.day_s, replace_s=options.start_s),
        scaling=Scaling(1, 2 * peak, options.target, start_s=options.start_s, hold_s=300.0) if scales else None,
    )
    return run_once(fleet, traffic_of(options), options.seed)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Simulate both fleets."""
    figures: dict[str, Any] = {"kind": options.kind, "day_s": options.day_s}
    step_s = options.day_s / _STEPS
    print("| fleet | p50, p99, ms | honest p99, ms | unanswered; lost | failures | node hours | a million costs |")
    print("|---|---|---|---|---|---|---|")
    for name, scales in {"scales": True, **({"peak": False} if options.fixed else {})}.items():
        outcome = simulate(options, scales=scales)
        row = outcome.figures(options.price)
        figures[name] = {
            **row,
            "steps": list(outcome.over_time(step_s)),
            "nodes": outcome.nodes_over_time,
            "honest_unanswered": sum(outcome.unanswered_of.values()) - outcome.unanswered_of["flooder"],
            "unanswered": dict(outcome.unanswered),
        }
        print(
            f"| {name} | {row['p50_ms']:.0f}, {row['p99_ms']:.0f} | {row['honest_p99_ms']:.0f} "
            f"| {row['unanswered_share']:.4f}; {row['lost']} | {row['failures']} | {row['node_hours']:.2f} "
            f"| {row['million_costs']:.2f} |"
        )
    return figures


def draw(figures: dict[str, Any], path: Path) -> None:
    """Plot answers per second, nodes and p99 of the fleet that scales over the day."""
    from matplotlib.figure import Figure  # noqa: PLC0415 -- only for --plot

    day, figure = figures["scales"], Figure(figsize=(10, 4), layout="constrained")
    answers, nodes, p99 = figure.subplots(3, 1, sharex=True)
    minutes = [begin / 60 for begin, *_ in day["steps"]]
    answers.plot(minutes, [per_s for _, per_s, _ in day["steps"]], color="#2a6f97")
    answers.set_ylabel("answers/s", fontsize=8)
    nodes.step([at / 60 for at, _ in day["nodes"]], [count for _, count in day["nodes"]], where="post", color="black")
    nodes.set_ylabel("nodes", fontsize=8)
    p99.plot(minutes, [late * 1e3 for *_, late in day["steps"]], color="#c1121f")
    p99.set_yscale("log")
    p99.set_ylabel("p99, ms", fontsize=8)
    p99.set_xlabel("minutes of a day that lasts an hour; burst at 30 %, flood at 60 %", fontsize=8)
    for axis in (answers, nodes, p99):
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
        for share in (0.3, 0.6):
            axis.axvspan(
                share * figures["day_s"] / 60, (share + 0.05) * figures["day_s"] / 60, color="#fcbf49", alpha=0.3
            )
    figure.savefig(path, dpi=100)


def main() -> None:
    """Simulate, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_fleet_flags(parser)
    parser.set_defaults(kind="photos-cpu")
    parser.add_argument("--mean-nodes", type=int, default=10, help="mean number of nodes that the load needs")
    parser.add_argument("--day-s", type=float, default=3600.0, help="length of the day in seconds")
    parser.add_argument("--start-s", type=float, default=60.0, help="seconds until a new node is ready")
    parser.add_argument("--target", type=float, default=5.0, help="requests in flight that each node should have")
    parser.add_argument("--deadline-s", type=float, default=10.0, help="deadline of a request in seconds")
    parser.add_argument("--fixed", action="store_true", help="compare with a fleet that does not scale")
    options = parser.parse_args()
    write_outputs(options, measure(options), draw)


if __name__ == "__main__":
    main()
