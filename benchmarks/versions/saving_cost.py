"""Measures by how much CPU time a saved request costs more than an unsaved one, for one or two revisions.

    .venv/bin/python -m benchmarks.versions.saving_cost [REVISION …] [--side 512] [--workers 2] [--rounds 40]

A revision is a name that git knows, or a folder with its source; "." (the default) is the working tree. Each has a
server with the fake engine, JPEG in and out. All run at once. In every round each gets some unsaved and as many saved
requests, in changing order, and a pause in which the last results are stored. The kernel counts each thread's time, so
other work on the machine affects the figures little; the work of the kernel's own threads for the disk is not counted.
Printed: the front ends' CPU time per request in ms, the median and quartiles of the rounds' differences and, for a
second revision, how the differences compare.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.harness.inputs import BODIES
from benchmarks.harness.machine import load_average, machine_facts
from benchmarks.harness.processes import Server, retouch_is_ready
from benchmarks.harness.raw_http import encode
from benchmarks.versions.checkout import source_of
from benchmarks.versions.loop_cost import Cost, ask, cpu_seconds, serving
from retouch.bench.load import run_on_uvloop

MODES = ("unsaved", "saved")
SAVED_S = 0.3
"""Seconds until the last results are stored: a result waits at most 0.1 s for others."""

Rounds = dict[str, dict[str, list[float]]]
"""CPU milliseconds per request in each round, by revision and mode (saved or not)."""


def front_end_ms(before: Cost, after: Cost, requests: int) -> float:
    """Return the CPU milliseconds per request of the front ends, or of a server of one process."""
    return sum((after[part] - before[part]) * 1e3 / requests for part in after if not part.startswith("engine"))


def differences(rounds: Mapping[str, Sequence[float]]) -> tuple[float, float, float]:
    """Return the additional cost of a saved request: lower quartile, median and upper quartile of the rounds."""
    more = [saved - unsaved for unsaved, saved in zip(rounds["unsaved"], rounds["saved"], strict=True)]
    low, median, high = statistics.quantiles(more, n=4)
    return low, median, high


async def measure(servers: Mapping[str, Server], requests: Mapping[str, bytes], options: argparse.Namespace) -> Rounds:
    """Measure all revisions in turn."""
    clients = {name: server.client() for name, server in servers.items()}
    found: Rounds = {name: {mode: [] for mode in MODES} for name in servers}
    for name, server in servers.items():
        await server.until_ready(retouch_is_ready)
        for mode in MODES:
            await ask(clients[name], requests[mode], options.connections, 2 * options.requests)
    cases = [(name, mode) for name in servers for mode in MODES]
    for number in range(options.rounds):
        first = number % len(cases)
        for name, mode in cases[first:] + cases[:first]:
            await asyncio.sleep(SAVED_S)
            before = cpu_seconds(servers[name].process.pid)
            await ask(clients[name], requests[mode], options.connections, options.requests)
            await asyncio.sleep(SAVED_S)
            after = cpu_seconds(servers[name].process.pid)
            found[name][mode].append(front_end_ms(before, after, options.requests))
    for client in clients.values():
        client.close()
    return found


def run(options: argparse.Namespace) -> Rounds:
    """Serve all revisions and measure them."""
    requests = {
        mode: encode("/v1/inpaint", *BODIES["inpaint"](options.side, save=str(mode == "saved").lower()))
        for mode in MODES
    }
    with contextlib.ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(
            prefix="retouch-saving-", dir=options.folder, ignore_cleanup_errors=True
        )
        parent, servers = Path(stack.enter_context(temporary)), {}
        for number, revision in enumerate(options.revisions):
            folder = parent / str(number)
            folder.mkdir()
            source = Path(revision).resolve() if Path(revision, "service").is_dir() else source_of(revision, folder)
            servers[revision] = stack.enter_context(serving(source, folder, options.side, options.workers))
        return run_on_uvloop(measure(servers, requests, options))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revisions", nargs="*", default=["."], help="revisions to measure; . is the working tree")
    parser.add_argument("--side", type=int, default=512, help="side of the pictures in pixels")
    parser.add_argument("--workers", type=int, default=2, help="front-end processes; 0: one process does everything")
    parser.add_argument("--connections", type=int, default=16, help="number of connections")
    parser.add_argument("--requests", type=int, default=40, help="requests of each mode in a round")
    parser.add_argument("--rounds", type=int, default=40, help="number of rounds")
    parser.add_argument("--folder", type=Path, help="folder for the results; by default the folder for temporary files")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    before = load_average()
    found = run(options)
    machine = {**machine_facts(), "load": [before, load_average()]}
    print(f"{machine['processor']}, {machine['cores']} cores, load {before} before, {load_average()} after")
    for revision, rounds in found.items():
        low, more, high = differences(rounds)
        unsaved, saved = (statistics.median(rounds[mode]) for mode in MODES)
        print(f"{revision}: unsaved {unsaved:.2f}, saved {saved:.2f} ms; more: {more:.3f} ({low:.3f} to {high:.3f})")
    if len(found) == 2:
        one, other = (differences(rounds)[1] for rounds in found.values())
        print(f"the second revision's difference is {other / one:.3f} of the first's")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "rounds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
