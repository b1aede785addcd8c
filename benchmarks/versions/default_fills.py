"""Compares the default fill of two revisions over HTTP, each with its shipped `photos` model.

    .venv/bin/python -m benchmarks.versions.default_fills --before 23a5997 --after . [--json FILE]

A request is a photograph as JPEG and a mask as PNG, without options: PNG reply, saved, `strategy=auto`. Masks are
strokes and boxes of 5, 30 and 60 % of the picture. In every round both servers run with default settings and get one
request after the other, first the one server, then the other; their order alternates. Printed by size and coverage: the
mean of p50 in milliseconds, and after/before with its 95 % interval (Student's t over the rounds' logarithms).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.harness.fill_cases import fill_cases
from benchmarks.harness.processes import Server, retouch_is_ready, started
from benchmarks.harness.ratios import Ratio, print_ratios, ratio_of
from benchmarks.harness.raw_http import encode
from benchmarks.versions.checkout import environment, source_of
from retouch.bench.load import run_on_uvloop
from retouch.bench.sender import encode as encode_form
from tests.serving.ports import free_port

SIDES = ("before", "after")

Requests = Mapping[str, Sequence[bytes]]
"""Encoded requests by cell, such as `512² 30 %`."""


def default_requests(sizes: Sequence[int]) -> dict[str, list[bytes]]:
    """Return for each size and coverage a request with each kind of hole; they are the same in every run."""
    found: dict[str, list[bytes]] = {}
    for cell, photo, mask in fill_cases(sizes):
        form = encode_form("/v1/inpaint", {"image": photo, "mask": mask}, {})
        found.setdefault(cell, []).append(encode("/v1/inpaint", form.content_type, form.body))
    return found


@contextlib.asynccontextmanager
async def serving(source: Path, folder: Path) -> AsyncIterator[Server]:
    """Run the server of a revision with its own models and default settings."""
    port = free_port()
    environ = {
        "RETOUCH_PORT": str(port),
        "RETOUCH_MODELS_DIR": str(source / "models"),
        "RETOUCH_RESULTS_DIR": str(folder / "results"),
        "RETOUCH_ENGINE_CACHE_DIR": str(folder / "cache"),
    }
    command = [sys.executable, "-m", "retouch", "serve"]
    with started(command, port, folder / "log", environ | environment(source), cwd=source) as server:
        await server.until_ready(retouch_is_ready)
        yield server


async def ask(server: Server, requests: Sequence[bytes], count: int) -> float:
    """Send each request once to warm up, then `count` requests one after the other; returns the p50 in milliseconds.

    Raises:
        SystemExit: a request is not answered 200.
    """
    client, times_ms = server.client(), []
    for index in range(count + len(requests)):
        begun = time.perf_counter()
        reply = await client.send(requests[index % len(requests)])
        if reply.status != 200:
            raise SystemExit(f"a fill was answered {reply.status} {reply.code}; see {server.log}")
        times_ms.append((time.perf_counter() - begun) * 1e3)
    client.close()
    await asyncio.sleep(0)
    return statistics.median(times_ms[len(requests) :])  # the first of each kind warms the server


async def one_round(
    sources: Mapping[str, Path], order: Sequence[str], requests: Requests, count: int, folder: Path
) -> dict[str, dict[str, float]]:
    """Return the p50 of each side, in milliseconds, by cell."""
    async with contextlib.AsyncExitStack() as stack:
        servers = {side: await stack.enter_async_context(serving(sources[side], folder / side)) for side in order}
        return {cell: {side: await ask(servers[side], own, count) for side in order} for cell, own in requests.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="revision to compare with")
    parser.add_argument("--after", default=".", help="revision to judge")
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024], help="sides in pixels")
    parser.add_argument("--rounds", type=int, default=4, help="number of rounds, at least 3")
    parser.add_argument("--count", type=int, default=10, help="requests in each cell and round")
    parser.add_argument("--json", type=Path, help="write all rounds and the ratios there")
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("an interval needs --rounds of 3 or more")
    requests, rounds = default_requests(options.sizes), []
    with tempfile.TemporaryDirectory(prefix="retouch-fills-", ignore_cleanup_errors=True) as name:
        sources = {side: source_of(getattr(options, side), Path(name) / f"source-{side}") for side in SIDES}
        for number in range(options.rounds):
            folder = Path(name) / f"round-{number}"
            for side in SIDES:
                (folder / side).mkdir(parents=True)
            order = SIDES if number % 2 == 0 else SIDES[::-1]
            rounds.append(run_on_uvloop(one_round(sources, order, requests, options.count, folder)))
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    found: dict[str, Ratio] = {
        f"{cell}: p50 ms": ratio_of(*([one[cell][side] for one in rounds] for side in SIDES)) for cell in requests
    }
    print_ratios(f"default fill, after ({options.after}) over before ({options.before})", SIDES, found)
    if options.json:
        figures = {"ratios": {cell: asdict(row) for cell, row in found.items()}, "rounds": rounds}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
