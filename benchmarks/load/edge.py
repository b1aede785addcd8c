"""Measures normal requests during many wasteful connections: none, idle, slow headers, oversized headers.

    .venv/bin/python -m benchmarks.load.edge [--connections 1000] [--rounds 5] [--seconds 6] [--json FILE]

A server with the fake engine (10 ms per batch) gets 40 inpaint requests per second in an open loop, while a second
process holds the wasteful connections (the crowd). Every round measures each kind of crowd; percentiles are over all
rounds. Bar: p99 at most twice that without a crowd.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.harness.inputs import photo_and_mask
from benchmarks.harness.processes import retouch, retouch_is_ready
from retouch.bench.load import LoadGenerator, Observation, raise_open_file_limit, run_on_uvloop
from retouch.bench.schedule import poisson_due_times
from retouch.bench.sender import encode, open_sender

RATE_PER_S = 40.0
CROWDS = ("none", "idle", "slow headers", "oversized headers")
_HEAD = b"GET /livez HTTP/1.1\r\nHost: x\r\n"


async def _one_of_the_crowd(kind: str, host: str, port: int, count_connection: Callable[[], None]) -> None:
    """Open one wasteful connection after another; ends with the process."""
    while True:
        reader, writer = await asyncio.open_connection(host, port)
        count_connection()
        with contextlib.suppress(ConnectionError):
            if kind == "idle":  # kept alive after one good request
                writer.write(_HEAD + b"\r\n")
                await reader.readuntil(b"}")
                await reader.read()
            elif kind == "slow headers":
                writer.write(_HEAD)
                while not reader.at_eof() and not writer.is_closing():
                    writer.write(b"X-Slow: 1\r\n")
                    await asyncio.sleep(1 + random.random())
            else:
                writer.write(_HEAD + b"X-Filler: " + b"a" * 80_000)
                await reader.read()
                await asyncio.sleep(1 + random.random())
        writer.close()


async def be_a_crowd(kind: str, connections: int, url: str) -> None:
    """Hold the connections until the process is killed; prints a line when all are open."""
    parts, arrivals = urlsplit(url), itertools.count(1)

    def count_connection() -> None:
        if next(arrivals) == connections:
            print("all here", flush=True)

    tasks = []
    for _ in range(connections):
        tasks.append(
            asyncio.create_task(_one_of_the_crowd(kind, parts.hostname or "", parts.port or 80, count_connection))
        )
        await asyncio.sleep(0.001)
    await asyncio.gather(*tasks)


@contextlib.asynccontextmanager
async def crowd(kind: str, connections: int, url: str) -> AsyncIterator[None]:
    """Run the wasteful connections in another process, so that they do not disturb the load generator."""
    if kind == "none":
        yield
        return
    arguments = [
        sys.executable,
        "-m",
        "benchmarks.load.edge",
        "--be",
        kind,
        "--connections",
        str(connections),
        "--url",
        url,
    ]
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        await asyncio.sleep(1)  # waits for the replies to their first requests
        yield
    finally:
        process.kill()
        await process.wait()
        await asyncio.sleep(2)  # wait until the server has closed them


async def measure(url: str, rounds: int, seconds: float, connections: int) -> dict[str, dict[str, Any]]:
    """Measure the latencies in ms of normal requests during each kind of crowd."""
    photo, mask = photo_and_mask(256)
    payload = encode("/v1/inpaint", {"image": photo, "mask": mask}, {"format": "jpeg", "save": "false"})
    observations: dict[str, list[Observation]] = {kind: [] for kind in CROWDS}
    async with open_sender(url) as sender:
        for number in range(rounds):
            for kind in CROWDS:
                loop = LoadGenerator(
                    sender, [payload], time.perf_counter, asyncio.sleep, observations[kind].append, 30.0
                )
                async with crowd(kind, connections, url):
                    await loop.open_loop(poisson_due_times(RATE_PER_S, seconds, random.Random(number)))
    return {kind: summary(observations) for kind, observations in observations.items()}


def summary(observations: list[Observation]) -> dict[str, Any]:
    """Return percentiles of the latencies, counted from the due time."""
    times_ms = [(one.done_s - one.due_s) * 1e3 for one in observations]
    p50, p99 = np.percentile(times_ms, [50, 99])
    failed = sum(one.reply.status != 200 for one in observations)
    return {"requests": len(times_ms), "failed": failed, "p50_ms": float(p50), "p99_ms": float(p99)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=1000, help="number of connections")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of each measurement in seconds")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--be", choices=CROWDS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    raise_open_file_limit()
    if options.be:
        asyncio.run(be_a_crowd(options.be, options.connections, options.url))
        return
    os.environ |= {"RETOUCH_ENGINE": "fake", "RETOUCH_FAKE_BATCH_MS": "10", "RETOUCH_LOG_LEVEL": "warning"}
    with tempfile.TemporaryDirectory() as folder, retouch(Path(folder)) as server:
        asyncio.run(server.until_ready(retouch_is_ready))
        url = f"http://127.0.0.1:{server.port}"
        result = run_on_uvloop(measure(url, options.rounds, options.seconds, options.connections))
    for row in result.values():
        row["p99_ratio"] = row["p99_ms"] / result["none"]["p99_ms"]
    print(f"{RATE_PER_S:g} inpaints/s during {options.connections} connections\n")
    print("| crowd | requests | failed | p50 ms | p99 ms | p99 ratio to none |\n|---|---|---|---|---|---|")
    for kind, row in result.items():
        figures = f"{row['p50_ms']:.1f} | {row['p99_ms']:.1f} | {row['p99_ratio']:.2f}"
        print(f"| {kind} | {row['requests']} | {row['failed']} | {figures} |")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
