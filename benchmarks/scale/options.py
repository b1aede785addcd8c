"""Flags that the commands of the simulator share."""

from __future__ import annotations

import argparse
import random

from benchmarks.harness.outputs import add_output_flags
from benchmarks.scale.arrivals import Traffic
from benchmarks.scale.balancing import BALANCINGS
from benchmarks.scale.outcome import Outcome
from benchmarks.scale.service_times import kinds_of_nodes, measured_times
from benchmarks.scale.simulation import Fleet, Simulation


def add_fleet_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of nodes, balancing, price, seed and output."""
    parser.add_argument(
        "--kind", default="pconv-h200", choices=kinds_of_nodes(), help="kind of node in service_times.json"
    )
    parser.add_argument(
        "--balancing", default="least requests", choices=list(BALANCINGS), help="rule by which proxies choose a node"
    )
    parser.add_argument("--proxies", type=int, default=1, help="number of proxies, which balance independently")
    parser.add_argument("--uneven", type=float, default=0.0, help="share by which the slowest node takes longer")
    parser.add_argument("--price", type=float, default=1.0, help="price of a node for an hour, in any currency")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random choices")
    add_output_flags(parser)


def fleet_of(options: argparse.Namespace, nodes: int) -> Fleet:
    """Return the fleet that the flags describe."""
    return Fleet(measured_times(options.kind), nodes, options.balancing, proxies=options.proxies, uneven=options.uneven)


def run_once(fleet: Fleet, traffic: Traffic, seed: int) -> Outcome:
    """Simulate; the same seed gives the same arrivals for every fleet."""
    return Simulation(fleet, traffic.arrivals(random.Random(seed)), random.Random(seed + 1)).run()
