"""Measures one server with several kinds of requests: not saved, saved, as PNG, one at a time; then at full speed.

    PYTHONPATH=. python3 -m benchmarks.requests.request_kinds --engine inductor --models-dir M --model NAME --side 512 \
        --batch 32 --workers 16 --connections 256 --clients 2 --seconds 3 --rounds 3 --minute 60 --json FILE
    .venv/bin/python -m benchmarks.requests.request_kinds --engine fake --side 64 --workers 1 --seconds 1 --minute 2

Every round sends each kind for `--seconds`, so that changes of the host affect all kinds. The spool has the server's
default limits, and results are written to `--folder`. With `--minute S`, saved requests are then sent at full speed for
S seconds, and replies other than 200 are counted by their code. With `--profile FOLDER`, the CPU time of each thread of
the engine process and of a front end is measured by kind, and their stacks are recorded under the first kind
(process_profile.py). The JSON is written after every step; its `log` counts the server's warnings and errors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.inputs import BODIES, write_fake_models
from benchmarks.harness.processes import Server, retouch
from benchmarks.harness.raw_http import encode
from benchmarks.harness.raw_load import Answers, Target, drive
from benchmarks.load.core_seconds import Sampler, snapshot
from benchmarks.load.front_ends import all_are_ready, engine_alone
from benchmarks.load.load_options import load_parser, server_settings
from benchmarks.requests.process_profile import processes_of, record_stacks, thread_times

_KINDS: dict[str, tuple[dict[str, str], bool]] = {
    "jpeg": ({"format": "jpeg", "save": "false"}, False),
    "jpeg, saved": ({"format": "jpeg", "save": "true"}, False),
    "png": ({"format": "png", "save": "false"}, False),
    "png, saved": ({"format": "png", "save": "true"}, False),
    "lone jpeg": ({"format": "jpeg", "save": "false"}, True),
    "lone png": ({"format": "png", "save": "false"}, True),
}
"""By kind: the form fields, and whether requests are sent one at a time."""


@dataclass
class Kind:
    """A kind of request and its measurements."""

    name: str
    target: Target
    per_s: list[float] = field(default_factory=list)
    cores: list[dict[str, float]] = field(default_factory=list)
    """Busy cores by kind of process, in each round."""
    total: Answers = field(default_factory=Answers)

    def measure(self, server: Server, options: argparse.Namespace, seconds: float) -> None:
        """Measure one round."""
        take = partial(snapshot, server.process.pid, 1 if options.workers else 0, options.workers)
        with Sampler(take) as sampler:
            answers = drive(self.target, seconds)
        self.cores.append({**sampler.cores(0.8 * seconds), "client": answers.cpu_s / seconds})
        self.per_s.append(answers.per_s)
        self.total.add(answers)

    def report(self) -> dict[str, Any]:
        """Return the figures: medians of the rounds, percentiles of all replies."""
        per_s = statistics.median(self.per_s)
        cores = {kind: statistics.median(one.get(kind, 0.0) for one in self.cores) for kind in self.cores[0]}
        return {
            "kind": self.name,
            "connections": self.target.connections,
            "images_per_s": round(per_s, 1),
            "rounds": [round(value, 1) for value in self.per_s],
            "statuses": dict(self.total.statuses),
            "refused": dict(self.total.codes),
            "p50_ms": round(self.total.percentile_ms(0.5), 2),
            "p99_ms": round(self.total.percentile_ms(0.99), 2),
            "mean_batch": round(self.total.mean_batch, 1),
            "cores": {kind: round(value, 2) for kind, value in cores.items()},
            "cpu_ms_per_image": {kind: round(value * 1e3 / max(per_s, 1e-9), 3) for kind, value in cores.items()},
        }


def start(stack: ExitStack, folder: Path, options: argparse.Namespace) -> Server:
    """Start the server and wait until all its front ends are ready."""
    settings: dict[str, Any] = {
        "workers": options.workers,
        "engine_processes": 1 if options.workers else 0,
        **server_settings(options),
    }
    server = stack.enter_context(retouch(folder, **settings))
    asyncio.run(server.until_ready(lambda _: all_are_ready(server, max(1, options.workers)), 300))
    return server


def main() -> None:
    """Measure and print."""
    parser = load_parser(__doc__)
    parser.add_argument("--workers", type=int, default=16, help="front-end processes; 0: one process does everything")
    parser.add_argument(
        "--kinds", nargs="+", choices=list(_KINDS), default=list(_KINDS), help="kinds of requests to measure"
    )
    parser.add_argument("--minute", type=float, default=0.0, help="seconds of saved requests at full speed at the end")
    parser.add_argument("--folder", type=Path, help="folder for the results; by default the folder for temporary files")
    parser.add_argument("--profile", type=Path, help="profile at the end, and write stacks to this folder")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that started processes are ended
    facts: dict[str, Any] = {"arguments": vars(options), "cores": len(os.sched_getaffinity(0))}

    def write(**more: Any) -> None:
        facts.update(more)
        print(json.dumps(more, default=str), flush=True)
        if options.json:
            options.json.write_text(json.dumps(facts, indent=1, default=str))

    with ExitStack() as stack:
        measure_all(stack, options, write)


def measure_all(stack: ExitStack, options: argparse.Namespace, write: Callable[..., None]) -> None:
    """Measure the engine alone, the kinds in turn and the minute; `write` is called after each step."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder, ignore_cleanup_errors=True)))
    if options.engine == "fake":
        options.models_dir = folder / "models"
        write_fake_models(options.models_dir, (options.side,), options.batch)
    else:
        write(engine_alone=engine_alone(options))
    started = time.monotonic()
    server = start(stack, folder, options)
    write(ready_s=round(time.monotonic() - started, 1))
    kinds = [_kind(name, server.port, options) for name in options.kinds]
    drive(kinds[0].target, 2.0)
    for number in range(options.rounds):
        for one in kinds if number % 2 == 0 else kinds[::-1]:
            one.measure(server, options, options.seconds)
        write(kinds=[one.report() for one in kinds], load=os.getloadavg())
    saved = _kind("jpeg, saved", server.port, options)
    for _ in range(math.ceil(options.minute / 10)):
        saved.measure(server, options, min(10.0, options.minute))
        write(minute=saved.report())
    if options.profile:
        _profile(server, kinds, options, write)
    write(log=count_complaints(server.log.read_text().splitlines()))


def count_complaints(log: Iterable[str]) -> dict[str, int]:
    """Count a server's warnings and errors by level, event and reason; other lines than log entries by their text."""
    counted: Counter[str] = Counter()
    for line in log:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or "level" not in entry:
            counted[line[:200]] += 1
        elif entry["level"] in {"warning", "error", "critical"}:
            parts = (entry.get(name, "") for name in ("level", "event", "reason", "error"))
            counted[": ".join(str(word) for word in parts if word)[:300]] += 1
    return dict(counted.most_common())


def _profile(server: Server, kinds: list[Kind], options: argparse.Namespace, write: Callable[..., None]) -> None:
    processes = processes_of(server.process.pid, options.workers)
    write(threads={one.name: thread_times(processes, one.target, options.seconds) for one in kinds})
    write(stacks=record_stacks(processes, kinds[0].target, 5.0, options.profile))


def _kind(name: str, port: int, options: argparse.Namespace) -> Kind:
    fields, alone = _KINDS[name]
    request = encode(f"/v1/{options.task}", *BODIES[options.task](options.side, **fields))
    return Kind(name, Target(port, request, *((1, 1) if alone else (options.connections, options.clients))))


if __name__ == "__main__":
    main()
