"""Compares rules of balancing on the same arrivals, in virtual time.

    .venv/bin/python -m benchmarks.scale.compare [--kind photos-cpu] [--nodes 20] [--load 0.8] [--models 8]
        [--uneven 0.3] [--proxies 4] [--json FILE] [--plot FILE]

Four situations: equal nodes; nodes whose times are up to `--uneven` longer (a share); `--models` models, whose samples
cannot share a batch; nodes that freeze and die. Each is simulated with one proxy and with `--proxies` independent ones.
Reported: p50, p99, the share of requests without an answer, and the mean batch size.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness.outputs import write_outputs
from benchmarks.scale.arrivals import Traffic
from benchmarks.scale.balancing import BALANCINGS
from benchmarks.scale.options import add_fleet_flags, fleet_of, run_once
from benchmarks.scale.scaling import Failures
from benchmarks.scale.simulation import Fleet


def situations(options: argparse.Namespace) -> dict[str, tuple[Fleet, Traffic]]:
    """Return the fleets and their traffic by name."""
    fleet = replace(fleet_of(options, options.nodes), uneven=0.0, proxies=1)
    per_s = options.load * options.nodes * fleet.times.capacity_per_s
    traffic = Traffic(per_s, max(5.0, options.requests / per_s))
    failures = Failures(options.nodes * traffic.seconds / 6, frozen=0.5, notice_s=2.0, replace_s=traffic.seconds / 10)
    return {
        "equal nodes": (fleet, traffic),
        f"slowest {options.uneven:.0%} slower": (replace(fleet, uneven=options.uneven), traffic),
        f"{options.models} models": (fleet, replace(traffic, models=options.models)),
        "nodes fail": (replace(fleet, failures=failures, repeats=1), traffic),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Simulate every rule in every situation."""
    print("| situation | proxies | rule | p50, p99, ms | unanswered | mean batch |\n|---|---|---|---|---|---|")
    rows = []
    for situation, (fleet, traffic) in situations(options).items():
        for proxies in sorted({1, options.proxies}):
            for rule in BALANCINGS:
                found = run_once(replace(fleet, balancing=rule, proxies=proxies), traffic, options.seed)
                row = {"situation": situation, "proxies": proxies, "rule": rule, **found.figures(options.price)}
                rows.append(row)
                print(
                    f"| {situation} | {proxies} | {rule} | {row['p50_ms']:.0f}, {row['p99_ms']:.0f} "
                    f"| {row['unanswered_share']:.4f} | {row['mean_batch']:.2f} |",
                    flush=True,
                )
    return {"kind": options.kind, "nodes": options.nodes, "load": options.load, "rows": rows}


def draw(figures: dict[str, Any], path: Path) -> None:
    """Plot p99 of each rule in each situation; dark: one proxy, light: several."""
    from matplotlib.figure import Figure  # noqa: PLC0415 -- only for --plot

    rows = figures["rows"]
    names = list(dict.fromkeys(row["situation"] for row in rows))
    figure = Figure(figsize=(10, 2.8), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(names)), names, strict=True):
        for offset, proxies in enumerate(sorted({row["proxies"] for row in rows})):
            here = [row for row in rows if row["situation"] == name and row["proxies"] == proxies]
            places = [place + 0.4 * offset for place in range(len(here))]
            colour = ("#2a6f97", "#a9d6e5")[offset]
            axis.barh(
                places,
                [row["p99_ms"] for row in here],
                0.38,
                color=colour,
                label="one proxy" if proxies == 1 else f"{proxies} proxies",
            )
        axis.set_yticks([place + 0.2 for place in range(len(BALANCINGS))], list(BALANCINGS), fontsize=7)
        axis.invert_yaxis()
        axis.set_title(name, fontsize=8)
        axis.set_xlabel("p99, ms", fontsize=7)
        axis.tick_params(labelsize=7)
    figure.axes[0].legend(fontsize=6)
    for axis in figure.axes[1:]:
        axis.set_yticklabels([])
    figure.suptitle(f"simulated: {figures['nodes']} × {figures['kind']} at {figures['load']:.0%} load", fontsize=9)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Simulate, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_fleet_flags(parser)
    parser.set_defaults(kind="photos-cpu", proxies=4, uneven=0.3)
    parser.add_argument("--nodes", type=int, default=20, help="number of nodes")
    parser.add_argument("--load", type=float, default=0.8, help="share of the nodes' capacity")
    parser.add_argument("--models", type=int, default=8, help="number of models")
    parser.add_argument("--requests", type=int, default=40_000, help="requests of each simulation")
    options = parser.parse_args()
    write_outputs(options, measure(options), draw)


if __name__ == "__main__":
    main()
