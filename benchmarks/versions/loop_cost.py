"""Measures the CPU time of a request in event loops and in other threads, by process, for one or two revisions.

    .venv/bin/python -m benchmarks.versions.loop_cost [REVISION …] [--side 256] [--task inpaint] [--rounds 5]
    … --workers 2     # two front ends and an engine process

A revision is a name that git knows; "." (the default) is the working tree. Each has a server with the fake engine,
whose batches take no time, JPEG in and out, nothing saved. All run at once and are measured alternately: with one
connection (`alone`), with 32 (`loaded`), and without requests (`idle`). The kernel counts each thread's time
(/proc/PID/task/TID/schedstat), so other work on the machine affects the figures little. Printed: medians of the rounds,
in ms of CPU time per request (`idle`: per second, from half a second after the last request), with the event loops'
part in each round, the processor and the load average before and after; front ends are summed. An event loop's time
includes the kernel's work for its sockets, its periodic tasks and, in a front end with one codec thread, the work on
pictures, which is small with `--side 64`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from benchmarks.harness.inputs import BODIES, write_fake_models
from benchmarks.harness.machine import load_average, machine_facts
from benchmarks.harness.processes import Server, retouch_is_ready, started
from benchmarks.harness.raw_http import Client, encode
from benchmarks.versions.checkout import environment, source_of
from retouch.bench.load import run_on_uvloop
from tests.serving.ports import free_port

CONNECTIONS = {"alone": 1, "loaded": 32}
REQUESTS = 600
IDLE_S = 2.0


Cost = Counter[str]
"""CPU time by process and thread: seconds so far, or milliseconds per request."""


@contextlib.contextmanager
def serving(source: Path, folder: Path, side: int, workers: int, **more: object) -> Iterator[Server]:
    """Run the server of a revision; `more` are settings."""
    write_fake_models(folder / "models", (side,))
    chosen = {
        "port": free_port(),
        "models_dir": folder / "models",
        "results_dir": folder / "results",
        "engine_cache_dir": folder / "cache",
        "inpaint_model": "photos",
        "translate_model": "facades",
        "engine": "fake",
        "save": False,
        "workers": workers,
        **more,
    }
    environ = {f"RETOUCH_{name.upper()}": str(value) for name, value in chosen.items()} | environment(source)
    command = [sys.executable, "-m", "retouch", "serve"]
    with started(command, int(str(chosen["port"])), folder / "log", environ, cwd=source) as server:
        yield server


def cpu_seconds(server: int) -> Cost:
    """Return the CPU time so far of a server: of each kind of process its event loop's thread, and all others."""
    found, children = Cost(), sorted(child.pid for child in psutil.Process(server).children())
    kinds = ["engine process", *["front end"] * (len(children) - 1)] if children else ["server"]
    for kind, pid in zip(kinds, children or [server], strict=True):
        for task in Path(f"/proc/{pid}/task").iterdir():
            thread = "event loop" if int(task.name) == pid else "other threads"
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                found[f"{kind}, {thread}"] += int((task / "schedstat").read_text().split()[0]) / 1e9  # type: ignore[assignment]
    return found


async def ask(client: Client, request: bytes, connections: int, requests: int) -> None:
    """Send a number of requests over a number of connections.

    Raises:
        SystemExit: a request was not answered 200.
    """
    left = requests

    async def keep_sending() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            reply = await client.send(request)
            if reply.status != 200:
                raise SystemExit(f"a request failed: {reply.status} {reply.body[:500]!r}")

    await asyncio.gather(*(keep_sending() for _ in range(connections)))


async def measure(servers: dict[str, Server], request: bytes, rounds: int) -> dict[str, dict[str, list[Cost]]]:
    """Return the cost of a request in each round, by revision and load."""
    clients = {name: server.client() for name, server in servers.items()}
    costs: dict[str, dict[str, list[Cost]]] = {name: {load: [] for load in (*CONNECTIONS, "idle")} for name in servers}
    for name, server in servers.items():
        await server.until_ready(retouch_is_ready)
        await ask(clients[name], request, 8, REQUESTS)
    for number in range(rounds):
        for load, connections in CONNECTIONS.items():
            for name in list(servers)[:: 1 if number % 2 else -1]:
                pid = servers[name].process.pid
                before = cpu_seconds(pid)
                await ask(clients[name], request, connections, REQUESTS)
                after = cpu_seconds(pid)
                costs[name][load].append(Cost({part: (after[part] - before[part]) * 1e3 / REQUESTS for part in after}))
        await asyncio.sleep(0.5)
        before_idle = {name: cpu_seconds(server.process.pid) for name, server in servers.items()}
        await asyncio.sleep(IDLE_S)
        for name, server in servers.items():
            idle = cpu_seconds(server.process.pid)
            idle.subtract(before_idle[name])
            costs[name]["idle"].append(Cost({part: seconds * 1e3 / IDLE_S for part, seconds in idle.items()}))
    for client in clients.values():
        client.close()
    return costs


def medians(rounds: Sequence[Cost]) -> Cost:
    """Return the median of each part."""
    return Cost({part: statistics.median(cost[part] for cost in rounds) for part in rounds[0]})


def loop_part(cost: Cost) -> float:
    """Return the event loops' part of a request's cost, over all processes."""
    return sum(ms for part, ms in cost.items() if part.endswith("event loop"))


def run(options: argparse.Namespace) -> dict[str, dict[str, list[Cost]]]:
    """Measure all revisions; returns the cost in each round, by revision and load."""
    content_type, body = BODIES[options.task](options.side)
    request = encode(f"/v1/{options.task}", content_type, body)
    with contextlib.ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="retouch-loop-", ignore_cleanup_errors=True)
        name, servers = stack.enter_context(temporary), {}
        for number, revision in enumerate(options.revisions):
            folder = Path(name) / str(number)
            folder.mkdir()
            servers[revision] = stack.enter_context(
                serving(source_of(revision, folder), folder, options.side, options.workers)
            )
        return run_on_uvloop(measure(servers, request, options.rounds))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revisions", nargs="*", default=["."], help="revisions to measure; . is the working tree")
    parser.add_argument("--task", choices=list(BODIES), default="inpaint", help="task of the requests")
    parser.add_argument("--side", type=int, default=256, help="side of the pictures in pixels")
    parser.add_argument("--workers", type=int, default=0, help="front-end processes; 0: one process does everything")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    before = load_average()
    found = run(options)
    machine = {**machine_facts(), "load": [before, load_average()]}
    print(f"{machine['processor']}, {machine['cores']} cores, load {before} before, {load_average()} after")
    for revision, loads in found.items():
        for load, rounds in loads.items():
            cost = medians(rounds)
            parts = "; ".join(f"{part} {ms:.3f}" for part, ms in cost.items())
            print(f"{revision:10} {load:7} {sum(cost.values()):.3f} ms: {parts}")
            print(f"{'':19}event loops by round: {' '.join(f'{loop_part(cost):.3f}' for cost in rounds)}")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "revisions": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
