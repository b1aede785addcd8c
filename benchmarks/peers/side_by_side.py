"""Compares Retouch and its peers on one machine with the same client, model, codec and batch size, in turns.

    benchmarks/peers/install.sh
    .venv/bin/python -m benchmarks.peers.side_by_side [--models tiny,photos] [--rounds 3] [--json FILE] [--plot FILE]
    .venv/bin/python -m benchmarks.peers.side_by_side --models photos --throughput-only --rounds 2 --seconds 20

Every server is started once a round and measured alone; the others are not running. Rounds are interleaved, figures are
medians over them. What is measured of each:

- p50 and p99 in an open loop (Poisson arrivals, timed from when a request was due) at 25, 50 and 75 % of the engine's
  capacity; for `tiny` at 100 requests a second too.
- throughput at concurrency 32; the knee: the highest of the open-loop rates 40 … 100 % of capacity that is kept up with
  (95 % of what is sent is answered in time, within ten times the batch time).
- abandoned: 384 clients send and hang up 20 ms later; of those without a reply by then, how many were computed all the
  same.
- a burst of 2,000 at once: how many got 200, another answer, or none; whether the next request works.
- SIGTERM with 64 in flight: how many of them were answered 200; how long the process took to end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import signal
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.inputs import PHOTOS, ROOT
from benchmarks.harness.outputs import add_output_flags, write_outputs
from benchmarks.harness.processes import Server
from benchmarks.harness.raw_http import Client, Reply
from benchmarks.peers.report import draw, table
from benchmarks.peers.servers import SIDES, TINY_BATCH_MS, Contender, contenders, parts_of
from engines.base import BatchShape, blank_feed
from engines.engine_choice import EngineOptions, open_engine
from engines.manifest import read_manifest
from retouch.bench.load import raise_open_file_limit, run_on_uvloop
from retouch.bench.schedule import poisson_due_times

MAX_BATCH = 8
SHARES = (0.25, 0.5, 0.75)
KNEE_SHARES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
ABANDONED, BURST, DRAINED = 384, 2000, 64


def engine_capacity(model: str, seconds: float) -> float:
    """Measure pictures per second of the engine alone, in full batches."""
    if model == "tiny":
        return MAX_BATCH / TINY_BATCH_MS * 1e3
    directory = max(PHOTOS.iterdir(), key=lambda path: int(path.name))
    engine = open_engine(directory, read_manifest(directory), EngineOptions(cache_dir=ROOT / "cache"))
    feed = blank_feed(engine.manifest, BatchShape(MAX_BATCH, SIDES[model], SIDES[model]))
    feed = {**feed, "image": np.random.default_rng(0).random(feed["image"].shape, np.float32)}
    engine.infer(feed)
    started, runs = time.perf_counter(), 0
    while time.perf_counter() < started + seconds:
        engine.infer(feed)
        runs += 1
    return MAX_BATCH * runs / (time.perf_counter() - started)


async def closed_loop(client: Client, request: bytes, concurrency: int, seconds: float) -> dict[str, float]:
    """Return replies per second (200 only), and the number of other replies."""
    end, done, failed = time.perf_counter() + seconds, 0, 0

    async def one() -> None:
        nonlocal done, failed
        while time.perf_counter() < end:
            if (await client.send(request)).status == 200:
                done += 1
            else:
                failed += 1
                await asyncio.sleep(0.01)

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(concurrency)))
    return {"per_s": done / (time.perf_counter() - started), "failed": failed}


async def open_loop(client: Client, request: bytes, rate: float, seconds: float, patience_s: float) -> dict[str, float]:
    """Return latencies of replies with 200 in ms from their due time, and the share that came in time."""
    due_times = poisson_due_times(rate, seconds, random.Random(7))
    latencies: list[float] = []
    begun = time.perf_counter()

    async def one(due_s: float) -> None:
        reply = await client.send(request)
        if reply.status == 200:
            latencies.append(time.perf_counter() - begun - due_s)

    tasks = []
    for due_s in due_times:
        await asyncio.sleep(max(0.0, begun + due_s - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due_s)))
    _, late = await asyncio.wait(tasks, timeout=patience_s + 5)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    latencies.sort()
    in_time = sum(latency <= patience_s for latency in latencies) / len(due_times)
    if not latencies:
        return {"p50_ms": float("nan"), "p99_ms": float("nan"), "in_time": 0.0}
    return {"p50_ms": _at(latencies, 0.5), "p99_ms": _at(latencies, 0.99), "in_time": in_time}


def _at(ascending: list[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))] * 1e3


async def knee(client: Client, request: bytes, capacity: float, seconds: float, patience_s: float) -> float:
    """Return the highest rate that the server keeps up with; 0 if none."""
    best = 0.0
    for share in KNEE_SHARES:
        seen = await open_loop(client, request, share * capacity, seconds, patience_s)
        if seen["in_time"] < 0.95:
            break
        best = share * capacity
    return best


async def abandon(contender: Contender, client: Client, folder: Path, request: bytes) -> tuple[int, int] | None:
    """Return how many requests were abandoned, and how many of them computed; None if the server does not report it."""
    before = await _executed(contender, client, folder)
    if before is None:
        return None
    connections = await asyncio.gather(*(client.connection(fresh=True) for _ in range(ABANDONED)))
    for connection in connections:
        connection.transport.write(request)
    await asyncio.sleep(0.02)  # they have been sent, and the first batches have begun
    answered = sum(connection.surplus for connection in connections)  # answered before they could be abandoned
    for connection in connections:
        connection.transport.abort()
    previous = -1
    while (now := await _executed(contender, client, folder)) != previous:
        previous = now  # type: ignore[assignment]
        await asyncio.sleep(1.0)
    return ABANDONED - answered, max(0, (now or 0) - before - answered)


async def _executed(contender: Contender, client: Client, folder: Path) -> int | None:
    if contender.executed is not None:
        return int(await contender.executed(client, folder))
    count = folder / "executed"
    return count.stat().st_size if count.exists() else None


async def burst(client: Client, request: bytes) -> dict[str, Any]:
    """Send 2,000 requests at once and count the replies."""
    tasks = [asyncio.create_task(client.send(request)) for _ in range(BURST)]
    done, late = await asyncio.wait(tasks, timeout=120)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    statuses = Counter(task.result().status for task in done)
    with_retry = sum("retry-after" in task.result().headers for task in done if task.result().status != 200)
    after = await _patiently(client, request, 30)
    return {
        "ok": statuses[200],
        "refused_with_retry_after": with_retry,
        "failed": sum(count for status, count in statuses.items() if status != 200) - with_retry,
        "unanswered": len(late),
        "works_after": after.status == 200,
    }


async def _patiently(client: Client, request: bytes, seconds: float) -> Reply:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(asyncio.TimeoutError):
            reply = await asyncio.wait_for(client.send(request), 10)
            if reply.status == 200 or time.monotonic() > end:
                return reply
        if time.monotonic() > end:
            return Reply(0, {}, b"", "unanswered")
        await asyncio.sleep(0.5)


async def drain(server: Server, client: Client, request: bytes) -> dict[str, Any]:
    """Send SIGTERM with 64 requests in flight."""
    tasks = [asyncio.create_task(client.send(request)) for _ in range(DRAINED)]
    await asyncio.sleep(0.02)
    in_flight = sum(not task.done() for task in tasks)
    server.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    done, late = await asyncio.wait(tasks, timeout=60)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    with contextlib.suppress(Exception):
        await asyncio.to_thread(server.process.wait, 60)
    return {
        "in_flight": in_flight,
        "answered": sum(task.result().status == 200 for task in done),
        "ended_after_s": round(time.monotonic() - began, 1),
        "exit_status": server.process.poll(),
    }


async def measure(
    contender: Contender, model: str, capacity: float, seconds: float, last: bool, throughput_only: bool
) -> dict[str, Any]:
    """Measure one round of one server; the destructive parts in the last round only."""
    request = contender.request(parts_of(model), model)
    batch_s = MAX_BATCH / capacity
    patience_s = 10 * batch_s + 0.1
    seen: dict[str, Any] = {}

    async def probe(client: Client) -> bool:
        return (await client.send(request)).status == 200

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, contender.start(model, Path(name)) as server:
        await server.until_ready(probe)
        client, folder = server.client(), Path(name)
        await closed_loop(client, request, 16, min(3.0, seconds))
        if throughput_only:
            return {"concurrency_32": await closed_loop(client, request, 32, seconds)}
        if model == "tiny":
            seen["at_100"] = await open_loop(client, request, 100, seconds, patience_s)
        for share in SHARES:
            seen[f"at_{share:.0%}"] = await open_loop(client, request, share * capacity, seconds, patience_s)
        seen["concurrency_32"] = await closed_loop(client, request, 32, seconds)
        if last:
            seen["knee_per_s"] = await knee(client, request, capacity, seconds, patience_s)
            if model == "tiny":
                left = await abandon(contender, client, folder, request)
                seen["abandoned"], seen["abandoned_computed"] = left or (None, None)
                seen["burst"] = await burst(client, request)
                await _patiently(client, request, 30)
            seen["sigterm"] = await drain(server, client, request)
        client.close()
    return seen


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds of all servers."""
    chosen = [c for c in contenders() if not options.only or c.name in options.only.split(",")]
    figures: dict[str, Any] = {}
    for model in options.models.split(","):
        rounds: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in chosen}
        capacities = []
        for number in range(options.rounds):
            capacities.append(engine_capacity(model, options.seconds))
            for contender in chosen:
                try:
                    last = number == options.rounds - 1
                    seen = await measure(
                        contender, model, capacities[0], options.seconds, last, options.throughput_only
                    )
                    rounds[contender.name].append(seen)
                except RuntimeError as error:  # a peer that does not start must not end the comparison
                    print(f"{contender.name}: {error}", flush=True)
                print(model, number + 1, contender.name, json.dumps(rounds[contender.name][-1:]), flush=True)
        figures[model] = {
            "engine_alone_per_s": statistics.median(capacities),
            "contenders": {name: _median(seen) for name, seen in rounds.items() if seen},
        }
    return figures


def _median(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of all rounds, and the figures that only the last round has."""
    merged: dict[str, Any] = dict(rounds[-1])
    for key, value in rounds[0].items():
        if isinstance(value, dict):
            merged[key] = {inner: statistics.median(seen[key][inner] for seen in rounds) for inner in value}
    return {**rounds[-1], **{key: value for key, value in merged.items() if key in rounds[0]}} if rounds else {}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="tiny,photos")
    parser.add_argument("--only", default="", help="names of contenders, by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--throughput-only", action="store_true", help="at concurrency 32, and nothing else")
    add_output_flags(parser)
    options = parser.parse_args()
    raise_open_file_limit()
    figures = run_on_uvloop(run(options))
    write_outputs(options, figures, draw)
    print(table(figures))


if __name__ == "__main__":
    main()
