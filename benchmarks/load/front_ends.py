"""Measures images per second over HTTP, with a single process and with front-end processes.

    .venv/bin/python -m benchmarks.load.front_ends --engine fake --fake-batch-ms 8 --side 64
    .venv/bin/python -m benchmarks.load.front_ends --side 256                       # models/photos
    PYTHONPATH=. python3 -m benchmarks.load.front_ends --engine inductor --models-dir M --model NAME --side 512 \
        --batch 32 --workers 8 --connections 256 --clients 3 --load 0.7 --one-at-a-time --json FILE
    … --workers 12 --engine-processes 1 2                                      # one GPU against two

Servers are measured one after another, in another order in every round; medians are printed. `--load 0.7` then measures
the latency in an open loop at this share of the server's throughput. The engine alone is measured first: images per
second at the largest batch, on a GPU by CUDA events and with inputs in its memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness.inputs import BODIES, ROOT, newest_version, write_fake_models
from benchmarks.harness.processes import Server, retouch
from benchmarks.harness.raw_http import Client, encode
from benchmarks.harness.raw_load import Answers, Target, drive
from benchmarks.load.core_seconds import Sampler, snapshot
from benchmarks.load.load_options import load_parser, server_settings


@dataclass
class Row:
    """A server and its measurements."""

    workers: int
    engine_processes: int
    server: Server
    target: Target
    started_at: float
    ready_s: float = 0.0
    per_s: list[float] = field(default_factory=list)
    cores: list[dict[str, float]] = field(default_factory=list)
    """Busy cores by kind of process, in each round."""
    total: Answers = field(default_factory=Answers)

    def measure(self, seconds: float) -> None:
        """Measure one round."""
        with Sampler(partial(snapshot, self.server.process.pid, self.engine_processes, self.workers)) as sampler:
            answers = drive(self.target, seconds)
        self.cores.append({**sampler.cores(0.8 * seconds), "client": answers.cpu_s / seconds})
        self.per_s.append(answers.per_s)
        self.total.add(answers)

    def report(self, seconds: float, load: float) -> dict[str, Any]:
        """Return the figures; unless `load` is 0, also those at this share of the throughput."""
        per_s = statistics.median(self.per_s)
        cores = {kind: statistics.median(one.get(kind, 0.0) for one in self.cores) for kind in self.cores[0]}
        facts: dict[str, Any] = {
            "workers": self.workers,
            "engine_processes": self.engine_processes,
            "images_per_s": round(per_s, 1),
            "rounds": [round(value, 1) for value in self.per_s],
            "statuses": dict(self.total.statuses),
            "p50_ms": round(self.total.percentile_ms(0.5), 2),
            "mean_batch": round(self.total.mean_batch, 1),
            "cores": {kind: round(value, 2) for kind, value in cores.items()},
            "of_cores": len(os.sched_getaffinity(0)),
            "cpu_ms_per_image": {kind: round(value * 1e3 / per_s, 3) for kind, value in cores.items()},
            "ready_s": round(self.ready_s, 1),
        }
        if load:
            loaded = drive(self.target, seconds, per_s * load)
            facts |= {
                "load": load,
                "load_statuses": dict(loaded.statuses),
                "load_p50_ms": round(loaded.percentile_ms(0.5), 2),
                "load_p99_ms": round(loaded.percentile_ms(0.99), 2),
                "load_mean_batch": round(loaded.mean_batch, 1),
            }
        return facts


def start(stack: ExitStack, folder: Path, workers: int, engines: int, options: argparse.Namespace) -> Row:
    """Start a server."""
    own = folder / f"{workers}-{engines}"
    own.mkdir()
    settings: dict[str, Any] = {
        "workers": workers,
        "engine_processes": engines,
        "spool_max_items": 100_000,
        "save": options.save,
        **server_settings(options),
    }
    server = stack.enter_context(retouch(own, **settings))
    request = encode(f"/v1/{options.task}", *BODIES[options.task](options.side, format=options.output))
    target = Target(server.port, request, options.connections, options.clients)
    return Row(workers, engines or (1 if workers else 0), server, target, time.monotonic())


def until_ready(rows: Sequence[Row]) -> None:
    """Wait until all front ends of these servers are ready, and warm them up."""
    for row in rows:
        probe = partial(all_are_ready, row.server, max(1, row.workers))
        asyncio.run(row.server.until_ready(lambda _, probe=probe: probe(), 500))
        row.ready_s = time.monotonic() - row.started_at
    for row in rows:
        drive(row.target, 2.0)


async def all_are_ready(server: Server, front_ends: int) -> bool:
    """Return whether many new connections in a row reach a ready front end."""
    for _ in range(4 * front_ends):
        client = Client("127.0.0.1", server.port)
        status = (await client.get("/readyz")).status
        client.close()
        if status != 200:
            return False
    return True


def engine_alone(options: argparse.Namespace) -> dict[str, Any]:
    """Measure images per second of the engine in a separate process."""
    version = newest_version(options.models_dir / options.model)
    model_max_batch = json.loads((version / "manifest.json").read_text())["max_batch"]
    batch = min(options.batch, model_max_batch)
    command = [
        sys.executable,
        "-m",
        "benchmarks.load.front_ends",
        "--alone",
        version,
        "--engine",
        options.engine,
        "--cache",
        options.cache,
    ]
    command += ["--side", str(options.side), "--batch", str(batch)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the engine could not be measured:\n{done.stderr[-2000:]}")
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def measure_alone(options: argparse.Namespace) -> None:
    """Measure the engine in the separate process; prints one line of JSON."""
    from benchmarks.gpu.bench import engine_alone_s  # noqa: PLC0415 -- loads the engines
    from engines.base import BatchShape  # noqa: PLC0415
    from engines.engine_choice import EngineOptions, open_engine  # noqa: PLC0415
    from engines.manifest import read_manifest  # noqa: PLC0415
    from service.devices.gpu_layout import padded_batch_sizes  # noqa: PLC0415

    chosen = EngineOptions(options.engine, cache_dir=options.cache, max_batch=options.batch)
    engine = open_engine(options.alone, read_manifest(options.alone), chosen)
    shape = BatchShape(options.batch, options.side, options.side)
    engine.warm_up([shape._replace(batch=rows) for rows in padded_batch_sizes(options.batch)])  # as a server does
    seconds = engine_alone_s(engine, shape, 3.0)
    facts = {"engine": repr(engine), "batch": shape.batch, "batch_ms": seconds * 1e3}
    print(json.dumps({**facts, "images_per_s": shape.batch / seconds}))


def measure_all(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Return a report of each server."""
    reports = []
    servers = list(product(options.workers, options.engine_processes))
    if options.one_at_a_time:
        for workers, engines in servers:
            with ExitStack() as stack:
                row = start(stack, folder, workers, engines, options)
                until_ready([row])
                for _ in range(options.rounds):
                    row.measure(options.seconds)
                reports.append(row.report(options.seconds, options.load))
                print(json.dumps(reports[-1]), flush=True)
        return reports
    with ExitStack() as stack:
        rows = [start(stack, folder, workers, engines, options) for workers, engines in servers]
        until_ready(rows)
        for number in range(options.rounds):
            for row in [*rows[number % len(rows) :], *rows[: number % len(rows)]]:
                row.measure(options.seconds)
        for row in rows:
            reports.append(row.report(options.seconds, options.load))
            print(json.dumps(reports[-1]), flush=True)
    return reports


def parse() -> argparse.Namespace:
    """Parse the arguments."""
    parser = load_parser(__doc__)
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[0, 1, 2],
        help="numbers of front-end processes; 0: one process does everything",
    )
    parser.add_argument(
        "--engine-processes",
        type=int,
        nargs="+",
        default=[0],
        help="engine processes of each server; 0: one for each GPU",
    )
    parser.add_argument("--load", type=float, default=0.0, help="share of the throughput at which latency is measured")
    parser.add_argument(
        "--one-at-a-time",
        action="store_true",
        help="start servers one at a time, if memory is too small for all",
    )
    parser.add_argument(
        "--engine-alone", action=argparse.BooleanOptionalAction, default=True, help="measure the engine alone, too"
    )
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = parse()
    if options.alone:
        measure_alone(options)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that started processes are ended
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        alone: dict[str, Any] = {}
        if options.engine == "fake":
            options.models_dir = folder / "models"
            write_fake_models(options.models_dir, (options.side,), options.batch)
        elif options.engine_alone:
            alone = engine_alone(options)
            print(json.dumps({"engine_alone": alone}), flush=True)
        rows = measure_all(options, folder)
    for row in rows if alone else ():
        row["of_engine_alone"] = round(row["images_per_s"] / alone["images_per_s"], 3)
        if options.load:
            row["p99_over_batch"] = round(row["load_p99_ms"] / alone["batch_ms"], 2)
    text = json.dumps({"engine_alone": alone, "rows": rows, "arguments": vars(options)}, indent=1, default=str)
    if options.json:
        options.json.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
