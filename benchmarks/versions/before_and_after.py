"""Compares two revisions in one run: the same work over HTTP and by direct calls.

    .venv/bin/python -m benchmarks.versions.before_and_after --before 23a5997 --after . [--json FILE]

A revision is a name that git knows, or "." for the working tree; both run in the environment of this command. The model
is `tiny` of benchmarks/peers: a 64² JPEG is translated, a batch of up to 8 takes 8 ms, nothing is saved. Every round
starts both servers and both pipelines and measures each twice, in the order before, after, after, before (the next
round begins with after); the others are idle meanwhile. Measured over HTTP and directly: pictures per second and CPU
time per picture at concurrency 32 (that of the server's processes; for direct calls including the caller's), and p50
and p99 at 100 requests per second in an open loop. Printed: the mean of each side, and the ratio after/before with its
95 % interval (Student's t over the rounds' logarithms). `http/direct` is the throughput over HTTP relative to direct
calls.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness.inputs import ROOT, photo_and_mask, translate_body, write_fake_models
from benchmarks.harness.processes import retouch_is_ready, started
from benchmarks.harness.ratios import Ratio, print_ratios, ratio_of
from benchmarks.harness.raw_http import encode
from benchmarks.versions.checkout import environment, source_of
from benchmarks.versions.direct_calls import closed_loop, measure
from retouch.bench.load import raise_open_file_limit, run_on_uvloop
from tests.serving.ports import free_port

SIDE, BATCH_MS = 64, 8.0
SIDES = ("before", "after")
METRICS = ("per_s", "cpu_ms", "p50_ms", "p99_ms")

Figures = dict[str, float]
Measure = Callable[[float], Awaitable[Figures]]
"""Measures one side; the argument is the duration of each load in seconds."""


@contextlib.asynccontextmanager
async def http(source: Path, models: Path, folder: Path) -> Any:
    """Run the server of a revision."""
    port = free_port()
    chosen = {
        "port": port,
        "models_dir": models,
        "results_dir": folder / "results",
        "engine_cache_dir": folder / "cache",
        "engine": "fake",
        "fake_batch_ms": BATCH_MS,
        "save": False,
        "workers": 0,
    }
    environ = {f"RETOUCH_{name.upper()}": str(value) for name, value in chosen.items()} | environment(source)
    content_type, body = translate_body(SIDE)
    request = encode("/v1/translate", content_type, body)
    with started([sys.executable, "-m", "retouch", "serve"], port, folder / "log", environ, cwd=source) as server:
        await server.until_ready(retouch_is_ready)
        client, process = server.client(), psutil.Process(server.process.pid)

        async def call() -> bool:
            return (await client.send(request)).status == 200

        await closed_loop(call, 16, 1.0)
        yield lambda seconds: measure(call, lambda: cpu_seconds(process), seconds)
        client.close()


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process and its children so far."""
    return sum(sum(one.cpu_times()[:2]) for one in [process, *process.children(recursive=True)])


@contextlib.contextmanager
def direct(source: Path, models: Path, picture: Path) -> Iterator[Measure]:
    """Run the pipeline of a revision."""
    command = [sys.executable, ROOT / "benchmarks/versions/direct_calls.py", models, picture, str(BATCH_MS)]
    environ = {**os.environ, **environment(source)}
    with subprocess.Popen(
        command, cwd=source, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def answer(line: str = "") -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            if line:
                print(line, file=process.stdin, flush=True)
            if not (reply := process.stdout.readline()):
                raise SystemExit(f"the pipeline of {source} ended; its message is above")
            return reply

        async def measured(seconds: float) -> Figures:
            return dict(json.loads(await asyncio.to_thread(answer, str(seconds))))

        answer()
        yield measured  # the process also ends at the end of its input


async def one_round(sources: dict[str, Path], first: str, seconds: float, folder: Path) -> dict[str, Figures]:
    """Measure both sides twice; returns the means of both visits, by "SIDE WAY"."""
    second = next(side for side in SIDES if side != first)
    models, picture = folder / "models", folder / "picture.jpeg"
    write_fake_models(models, (SIDE,))
    picture.write_bytes(photo_and_mask(SIDE)[0])
    visits: dict[str, list[Figures]] = {}
    async with contextlib.AsyncExitStack() as stack:
        ways: dict[str, dict[str, Measure]] = {"http": {}, "direct": {}}
        for side in (first, second):
            opened = http(sources[side], models, folder / side)
            ways["http"][side] = await stack.enter_async_context(opened)
            ways["direct"][side] = stack.enter_context(direct(sources[side], models, picture))
        for way, measures in ways.items():
            for side in (first, second, second, first):
                figures = await measures[side](seconds)
                if figures["failed"]:
                    raise SystemExit(f"{side}, {way}: {figures['failed']:.0f} calls failed")
                visits.setdefault(f"{side} {way}", []).append(figures)
    return {name: {key: statistics.fmean(one[key] for one in both) for key in METRICS} for name, both in visits.items()}


def series(rounds: Sequence[dict[str, Figures]]) -> dict[str, tuple[list[float], list[float]]]:
    """Return by metric the values of all rounds, before and after."""
    lists = {
        f"{way} {key}": tuple([one[f"{side} {way}"][key] for one in rounds] for side in SIDES)
        for way in ("http", "direct")
        for key in METRICS
    }
    kept = (
        [http / direct for http, direct in zip(lists["http per_s"][i], lists["direct per_s"][i], strict=True)]
        for i in range(2)
    )
    return {**lists, "http/direct per_s": tuple(kept)}  # type: ignore[dict-item]


def summary(rounds: Sequence[dict[str, Figures]]) -> dict[str, Ratio]:
    """Return the ratio of each metric."""
    return {name: ratio_of(before, after) for name, (before, after) in series(rounds).items()}


def run(options: argparse.Namespace) -> list[dict[str, Figures]]:
    """Measure all rounds."""
    rounds: list[dict[str, Figures]] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="retouch-versions-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        sources = {side: source_of(getattr(options, side), folder / side) for side in SIDES}
        for number in range(options.rounds):
            inside = folder / f"round-{number}"
            for side in SIDES:
                (inside / side).mkdir(parents=True)
            rounds.append(run_on_uvloop(one_round(sources, SIDES[number % 2], options.seconds, inside)))
            rates = ", ".join(f"{name} {figures['per_s']:.0f}/s" for name, figures in rounds[-1].items())
            elapsed_s = time.monotonic() - begun
            left = elapsed_s / len(rounds) * (options.rounds - len(rounds))
            print(f"round {len(rounds)} of {options.rounds}: {rates}; {left:.0f} s left", file=sys.stderr, flush=True)
    return rounds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="revision to compare with")
    parser.add_argument("--after", default=".", help="revision to judge")
    parser.add_argument("--rounds", type=int, default=8, help="number of rounds, at least 3; 8 take about 10 minutes")
    parser.add_argument(
        "--seconds",
        type=float,
        default=4.0,
        help="seconds of each of the two loads, in each of the four visits of a round",
    )
    parser.add_argument("--json", type=Path, help="write all rounds and the summary there")
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("an interval needs --rounds of 3 or more")
    raise_open_file_limit()
    rounds = run(options)
    found = summary(rounds)
    print_ratios(f"after ({options.after}) over before ({options.before})", SIDES, found)
    if options.json:
        revisions = {side: getattr(options, side) for side in SIDES}
        figures = {**revisions, "summary": {name: asdict(row) for name, row in found.items()}, "rounds": rounds}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
