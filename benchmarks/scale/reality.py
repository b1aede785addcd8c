"""Compares the simulator with 1, 2 and 4 real nodes with the fake engine, on the same arrivals.

    .venv/bin/python -m benchmarks.scale.reality [--nodes 1,2,4] [--loads 0.5,0.75,0.9,1.3] [--seconds 30]
        [--json FILE]

One node is measured first: the times of its batches and of its host's work are the only input of the simulator. Then
every number of nodes is loaded at every share of its capacity. The load generator uses the simulator's balancer; above
the capacity every request has a deadline, and admission refuses some. The fake engine must be slow enough that this
machine's cores suffice for the host's work of all nodes and for the client: with 120 ms for a batch of 4, four nodes
answer 130 requests per second. Reported: real / simulated for p50, p99 and answers per second (bar: 0.85 to 1.15), and
the client's delay in sending (p99, ms), which is larger on a busy machine and matters less with a slower engine.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.scale.arrivals import Arrival, Traffic
from benchmarks.scale.real_nodes import Measured, calibrate, encode_request, load, real_nodes
from benchmarks.scale.service_times import ServiceTimes
from benchmarks.scale.simulation import Fleet, Simulation
from retouch.bench.load import run_on_uvloop

_BAR = 0.15


def simulated(fleet: Fleet, earlier: Sequence[Arrival], arrivals: Sequence[Arrival], begin_s: float) -> Measured:
    """Simulate the same arrivals after those of the earlier loads, from which the nodes learned their service rate.

    Returns:
        The figures of `arrivals`, which begin at `begin_s`, in the form of measured ones.
    """
    later = [arrival._replace(at_s=begin_s + arrival.at_s) for arrival in arrivals]
    simulation = Simulation(fleet, iter([*earlier, *later]), random.Random(0))
    answers = [answer for answer in simulation.run().answers if answer.arrived_at >= begin_s]
    return Measured(
        [answer.latency_s for answer in answers],
        len(arrivals) - len(answers),
        [answer.batch_size for answer in answers],
        seconds=simulation.events.now - begin_s,
    )


def compared(real: Measured, model: Measured) -> dict[str, Any]:
    """Return both sides' figures and their ratios."""
    sides = {"real": real.figures(), "simulated": model.figures()}
    ratios = {name: sides["real"][name] / sides["simulated"][name] for name in sides["real"]}
    unanswered = {"real": real.unanswered, "simulated": model.unanswered}
    late_ms = sorted(real.late_sends_s)[int(0.99 * len(real.late_sends_s))] * 1e3
    return {**sides, "ratios": ratios, "unanswered": unanswered, "late_send_p99_ms": late_ms}


def one_node(options: argparse.Namespace) -> ServiceTimes:
    """Measure the service times of one node."""
    with (
        tempfile.TemporaryDirectory() as folder,
        real_nodes(Path(folder), 1, options.batch_ms, options.max_batch) as clients,
    ):
        times: ServiceTimes = run_on_uvloop(calibrate(clients[0], options.max_batch, options.lone, options.full_s))
        return times


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Load every number of nodes at every rate."""
    times = one_node(options)
    print(f"one node: {times}\ncapacity {times.capacity_per_s:.1f} a second", flush=True)
    runs = []
    for count in map(int, options.nodes.split(",")):
        with (
            tempfile.TemporaryDirectory() as folder,
            real_nodes(Path(folder), count, options.batch_ms, options.max_batch) as clients,
        ):
            earlier, begin_s = list[Arrival](), 0.0
            for share in map(float, options.loads.split(",")):
                deadline_s = options.deadline_s if share > 1 else None
                traffic = Traffic(share * count * times.capacity_per_s, options.seconds, clients=1)
                arrivals = list(traffic.arrivals(random.Random(round(1000 * share) + count)))
                real = run_on_uvloop(load(clients, arrivals, options.balancing, encode_request(deadline_s)))
                fleet = Fleet(times, count, options.balancing, deadline_s=deadline_s)
                model = simulated(fleet, earlier, arrivals, begin_s)
                earlier += [arrival._replace(at_s=begin_s + arrival.at_s) for arrival in arrivals]
                begin_s += real.seconds
                runs.append({"nodes": count, "load": share, "requests": len(arrivals), **compared(real, model)})
                print(row(runs[-1]), flush=True)
    return {"times": asdict(times), "balancing": options.balancing, "runs": runs}


def row(run: dict[str, Any]) -> str:
    """Format one run as a row of Markdown."""
    cells = [f"{run['real'][name]:.1f} / {run['simulated'][name]:.1f}" for name in run["ratios"]]
    ratios = ", ".join(f"{ratio:.3f}" for ratio in run["ratios"].values())
    missed = [name for name, ratio in run["ratios"].items() if abs(ratio - 1) > _BAR]
    unanswered = f"{run['unanswered']['real']} / {run['unanswered']['simulated']}"
    verdict = f"missed: {', '.join(missed)}" if missed else "kept"
    return (
        f"| {run['nodes']} | {run['load']:.2f} | {run['requests']} | {' | '.join(cells)} | {unanswered} | {ratios} "
        f"| {run['late_send_p99_ms']:.0f} | {verdict} |"
    )


def main() -> None:
    """Measure, simulate, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="1,2,4", help="numbers of nodes, separated by commas")
    parser.add_argument("--loads", default="0.5,0.75,0.9,1.3", help="shares of the nodes' capacity")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of each load")
    parser.add_argument("--balancing", default="least requests", help="rule by which proxies choose a node")
    parser.add_argument("--batch-ms", type=float, default=120.0, help="ms that the fake engine takes for a batch")
    parser.add_argument("--max-batch", type=int, default=4, help="largest number of samples in a batch")
    parser.add_argument("--lone", type=int, default=40, help="requests one at a time, which measure the node")
    parser.add_argument("--full-s", type=float, default=8.0, help="seconds of full batches, which measure the node")
    parser.add_argument(
        "--deadline-s", type=float, default=1.5, help="deadline in seconds of requests above the capacity"
    )
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    print(
        "| nodes | load | requests | p50 ms real / simulated | p99 ms | answers/s | unanswered | ratios | late | bar |"
    )
    figures = measure(options)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
