"""Measures the cost of saving: p50 over HTTP with save=false, with saving, and with an Idempotency-Key too.

    .venv/bin/python -m benchmarks.load.saving [--json FILE] [--rounds 100]
    .venv/bin/python -m benchmarks.load.saving --disk [--folder DIR] [--threads 2 8] [--groups 1 64]

Two engines: the fake one with 8 ms a batch on 256², where everything else is what costs; and the shipped `photos` on
512² (JPEG in, PNG out). One request at a time, the ways in turn, so that a busy machine slows all of them.

With --disk instead: how many results of 60 kB a second the store makes durable in a folder, and the CPU time of each,
by the number of threads that write them and how many of those that wait each takes at once.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.harness.inputs import photo_and_mask
from benchmarks.harness.processes import retouch, retouch_is_ready
from service.saving.results import StoredResult
from service.saving.spool.capacity import SpoolLimits
from service.saving.spool.files import SpoolFiles
from service.saving.spool.process_folder import SpoolOwner
from service.saving.storage.disk import ResultFiles
from service.saving.store import ResultStore

WAYS = ("unsaved", "saved", "keyed")
ENGINES: dict[str, tuple[int, dict[str, str]]] = {
    "fake 8 ms 256²": (256, {"RETOUCH_ENGINE": "fake", "RETOUCH_FAKE_BATCH_MS": "8"}),
    "photos 512²": (512, {"RETOUCH_ENGINE": "auto"}),
}


async def post(session: aiohttp.ClientSession, way: str, inputs: tuple[bytes, bytes]) -> float:
    """Send one inpaint; returns its seconds."""
    form = aiohttp.FormData({"save": "false" if way == "unsaved" else "true"})
    form.add_field("image", inputs[0], filename="photo.jpg")
    form.add_field("mask", inputs[1], filename="mask.png")
    headers = {"Idempotency-Key": uuid.uuid4().hex} if way == "keyed" else {}
    started = time.perf_counter()
    async with session.post("/v1/inpaint", data=form, headers=headers) as response:
        await response.read()
        assert response.status == 200, await response.text()
    return time.perf_counter() - started


async def measure(side: int, rounds: int) -> dict[str, float]:
    """Return the p50 in ms of each way, and the ratios to unsaved."""
    inputs = photo_and_mask(side)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, retouch(Path(folder)) as server:
        await server.until_ready(retouch_is_ready)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
            for number in range(rounds + 5):
                for way in WAYS[number % 3 :] + WAYS[: number % 3]:
                    seconds = await post(session, way, inputs)
                    if number >= 5:
                        times[way].append(seconds)
    p50 = {way: statistics.median(values) * 1e3 for way, values in times.items()}
    return {**p50, **{f"{way}/unsaved": p50[way] / p50["unsaved"] for way in WAYS[1:]}}


def durable(threads: int, group: int, parent: Path | None) -> tuple[float, float]:
    """Return results per second and CPU milliseconds per result, in a new folder."""
    count, body = 512, os.urandom(60_000)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        files = ResultFiles(Path(folder), max_group_size=group)
        files.prepare()
        spool = SpoolFiles(SpoolOwner(Path(folder), lambda: uuid.uuid4().hex))
        with ResultStore(files, spool, SpoolLimits(count, 2**40), threads=threads) as store:
            started, cpu = time.perf_counter(), time.process_time()
            for _ in range(count):
                store.put(store.reserve(len(body)), StoredResult(uuid.uuid4().hex, body, "image/jpeg", {}))
            assert store.flush(600) == 0
            wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return count / wall_s, cpu_s / count * 1e3


def measure_disk(parent: Path | None, ways: list[tuple[int, int]]) -> None:
    """Print a line for each number of threads and group size: medians of three rounds in turn."""
    rounds = [{way: durable(*way, parent) for way in ways} for _ in range(3)]
    for threads, group in ways:
        figures = [one[threads, group] for one in rounds]
        per_s, cpu_ms = (statistics.median(values) for values in zip(*figures, strict=True))
        print(
            f"{threads:3} threads, groups of {group:3}: {per_s:6.0f} results/s, {cpu_ms:.2f} ms of CPU time each",
            flush=True,
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--disk", action="store_true")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; the temporary one otherwise")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 64])
    options = parser.parse_args()
    if options.disk:
        measure_disk(options.folder, list(itertools.product(options.threads, options.groups)))
        return
    figures: dict[str, Any] = {}
    print(f"{'p50, ms':16}" + "".join(f"{way:>10}" for way in WAYS) + "  saved/unsaved")
    for engine, (side, environ) in ENGINES.items():
        os.environ.update(environ)
        values = figures[engine] = asyncio.run(measure(side, options.rounds))
        row = "".join(f"{values[way]:10.2f}" for way in WAYS)
        print(f"{engine:16}{row}  {values['saved/unsaved']:.3f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
