"""Compares Retouch and its peers on one machine with the same client, model, codec and batch size.

    benchmarks/peers/install.sh
    .venv/bin/python -m benchmarks.peers.side_by_side [--models tiny,photos] [--rounds 3] [--json FILE] [--plot FILE]
    … --models tiny --only retouch,mosec --parts at_100 concurrency_32 abandoned --rounds 6

Every round starts each server once and measures it while the others are not running. Every second round has the
opposite order. Printed are the medians, the values of the rounds, the processor and the load average (which the
benchmark itself raises). The parts of `--parts` are measured in every round; by default all parts are, those from
`knee` on in the last round only. The parts:

- at_25, at_50, at_75: p50 and p99 in an open loop (Poisson arrivals, timed from when a request was due) at 25, 50 and
  75 % of the engine's capacity; at_100: at 100 requests per second, for `tiny`.
- concurrency_32: throughput at concurrency 32.
- knee: the highest open-loop rate, 40 … 100 % of capacity, that the server sustains (95 % of the requests are answered
  within ten times the batch time).
- abandoned, for `tiny`: 384 clients send a request and hang up 20 ms later; how many of the requests without a reply by
  then were computed nevertheless.
- burst, for `tiny`: 2,000 requests at once; how many got 200, another answer, or none; whether the next request works.
- sigterm: SIGTERM with 64 requests in flight; how many were answered 200; how long the process took to end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.engine_rate import engine_rate
from benchmarks.harness.inputs import ROOT, newest_version
from benchmarks.harness.machine import load_average, machine_facts
from benchmarks.harness.outputs import add_output_flags, write_outputs
from benchmarks.harness.raw_http import Client
from benchmarks.peers.parts import PARTS, Subject, closed_loop, measure_part, parts_of_round
from benchmarks.peers.report import draw, medians, table
from benchmarks.peers.servers import SIDES, TINY_BATCH_MS, Contender, contenders, parts_of
from engines.base import BatchShape
from engines.engine_choice import EngineOptions, open_engine
from engines.manifest import read_manifest
from retouch.bench.load import raise_open_file_limit, run_on_uvloop

MAX_BATCH = 8


def engine_capacity(model: str, seconds: float) -> float:
    """Measure pictures per second of the engine alone, in full batches."""
    if model == "tiny":
        return MAX_BATCH / TINY_BATCH_MS * 1e3
    directory = newest_version(ROOT / "models/photos")
    engine = open_engine(directory, read_manifest(directory), EngineOptions(cache_dir=ROOT / "cache"))
    return engine_rate(engine, BatchShape(MAX_BATCH, SIDES[model], SIDES[model]), seconds)


async def measure(
    contender: Contender, model: str, capacity: float, seconds: float, parts: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Start one server and measure these parts; returns the figures by part."""
    request = contender.request(parts_of(model), model)

    async def probe(client: Client) -> bool:
        return (await client.send(request)).status == 200

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, contender.start(model, Path(name)) as server:
        await server.until_ready(probe)
        client, reply_timeout_s = server.client(), 10 * MAX_BATCH / capacity + 0.1
        subject = Subject(contender, server, client, Path(name), request, capacity, seconds, reply_timeout_s)
        await closed_loop(client, request, 16, min(3.0, seconds))
        seen = {part: await measure_part(part, subject) for part in parts}
        client.close()
    return seen


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds of all servers."""
    chosen = [c for c in contenders() if not options.only or c.name in options.only.split(",")]
    figures: dict[str, Any] = {}
    for model in options.models.split(","):
        rounds: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in chosen}
        capacities, loads = [], []
        for number in range(options.rounds):
            capacities.append(engine_capacity(model, options.seconds))
            parts = parts_of_round(options.parts, model, last=number == options.rounds - 1)
            for contender in chosen[:: -1 if number % 2 else 1]:
                loads.append(load_average())
                try:
                    seen = await measure(contender, model, capacities[0], options.seconds, parts)
                except RuntimeError as error:  # a peer that does not start must not end the comparison
                    print(f"{contender.name}: {error}", flush=True)
                    continue
                rounds[contender.name].append(seen)
                print(model, number + 1, contender.name, f"load {loads[-1]}", json.dumps(seen), flush=True)
        figures[model] = {
            "engine_alone_per_s": statistics.median(capacities),
            "load": loads,
            "contenders": {name: {"medians": medians(seen), "rounds": seen} for name, seen in rounds.items() if seen},
        }
    return {"machine": machine_facts(), "models": figures}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="tiny,photos", help="models to measure, separated by commas")
    parser.add_argument("--only", default="", help="names of servers, with commas")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=(), help="measure these parts in every round; by default all"
    )
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of each measurement")
    add_output_flags(parser)
    options = parser.parse_args()
    if options.plot and options.parts and not {"concurrency_32", "at_50"} <= set(options.parts):
        parser.error("--plot draws concurrency_32 and at_50: name both, or leave --parts out")
    raise_open_file_limit()
    figures = run_on_uvloop(run(options))
    write_outputs(options, figures, draw)
    print(table(figures))


if __name__ == "__main__":
    main()
