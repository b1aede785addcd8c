"""Measures how many results per second are made durable in one folder, and the CPU time of each.

    .venv/bin/python -m benchmarks.disk.durable [--folder DIR] [--processes 1 4 16] [--threads 2] [--groups 64]

Varied are the number of processes, the writing threads in each, and the waiting results that a thread saves as one
group. A server has as many front ends as cores, and all of them save into one folder. The CPU time by which a result
costs more with many processes than with one is spent in waiting for other processes: `system` is the CPU time in the
kernel, which includes busy waiting for locks. Files are deleted only at the end: for minutes after a deletion ext4
avoids the deleted inodes, and the search for others takes up to four times the cost of a result.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import NamedTuple

from service.saving.results import StoredResult
from service.saving.spool.capacity import SpoolLimits
from service.saving.spool.files import SpoolFiles
from service.saving.spool.process_folder import SpoolOwner
from service.saving.storage.disk import ResultFiles
from service.saving.store import ResultStore

_BARRIER_S = 60.0


class Layout(NamedTuple):
    """A layout to save results: processes, threads in each, and maximum size of a group."""

    processes: int
    threads: int
    group: int


class Outcome(NamedTuple):
    """The seconds that one process took, and its CPU seconds in user mode and in the kernel."""

    wall_s: float
    user_s: float
    system_s: float


class Figures(NamedTuple):
    """Results per second of all processes, and CPU milliseconds per result in user mode and in the kernel."""

    per_s: float
    user_ms: float
    system_ms: float


def save(folder: Path, layout: Layout, count: int, size: int, start: Barrier) -> Outcome:
    """Save results in one process, once all processes are ready."""
    body = os.urandom(size)
    files = ResultFiles(folder, max_group_size=layout.group)
    spool = SpoolFiles(SpoolOwner(folder, lambda: uuid.uuid4().hex))
    with ResultStore(files, spool, SpoolLimits(count, 2**40), threads=layout.threads) as store:
        start.wait(_BARRIER_S)
        started, before = time.perf_counter(), os.times()
        for _ in range(count):
            store.put(store.reserve(len(body)), StoredResult(uuid.uuid4().hex, body, "image/jpeg", {}))
        assert store.flush(600) == 0
        after = os.times()
        return Outcome(time.perf_counter() - started, after.user - before.user, after.system - before.system)


def measure(folder: Path, layout: Layout, count: int, size: int) -> Figures:
    """Measure one layout in a folder: `results` results of `size` bytes, divided among its processes."""
    ResultFiles(folder).prepare()
    context, each = multiprocessing.get_context("spawn"), max(1, count // layout.processes)
    with context.Manager() as manager, ProcessPoolExecutor(layout.processes, context) as pool:
        start = manager.Barrier(layout.processes)
        saving = [pool.submit(save, folder, layout, each, size, start) for _ in range(layout.processes)]
        outcomes = [one.result() for one in saving]
    total = each * layout.processes
    user_s, system_s = sum(one.user_s for one in outcomes), sum(one.system_s for one in outcomes)
    return Figures(total / max(one.wall_s for one in outcomes), user_s / total * 1e3, system_s / total * 1e3)


def measure_all(
    parent: Path | None, layouts: Sequence[Layout], options: argparse.Namespace
) -> dict[Layout, list[Figures]]:
    """Measure the layouts one after another in every round, each in a new folder."""
    found: dict[Layout, list[Figures]] = {layout: [] for layout in layouts}
    with tempfile.TemporaryDirectory(dir=parent) as name:
        for number, layout in itertools.product(range(options.rounds), layouts):
            found[layout].append(
                measure(Path(name, f"{number}-{'-'.join(map(str, layout))}"), layout, options.results, options.size)
            )
    return found


def main() -> None:
    """Measure and print a line for each layout: medians of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, help="folder on the disk to measure; by default the folder for temporary files"
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1], help="numbers of processes")
    parser.add_argument("--threads", type=int, nargs="+", default=[2], help="numbers of saving threads of a process")
    parser.add_argument(
        "--groups", type=int, nargs="+", default=[1, 64], help="results that are saved with the same syncs"
    )
    parser.add_argument("--results", type=int, default=512, help="results of all processes in a round")
    parser.add_argument("--size", type=int, default=60_000, help="size of a result in bytes")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument("--json", type=Path, help="write the figures of every round to this file")
    options = parser.parse_args()
    layouts = [Layout(*each) for each in itertools.product(options.processes, options.threads, options.groups)]
    found = measure_all(options.folder, layouts, options)
    for layout, rounds in found.items():
        per_s, user_ms, system_ms = (statistics.median(values) for values in zip(*rounds, strict=True))
        print(
            f"{layout.processes:3} processes, {layout.threads:2} threads each, groups of {layout.group:3}: "
            f"{per_s:6.0f} results/s, CPU {user_ms:.2f} ms each, system {system_ms:.2f}"
        )
    if options.json:
        rows = [{**layout._asdict(), "rounds": [one._asdict() for one in rounds]} for layout, rounds in found.items()]
        options.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
