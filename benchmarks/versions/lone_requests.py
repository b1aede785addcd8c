"""Compares the time of single requests over HTTP, without the engine's, between two revisions.

    .venv/bin/python -m benchmarks.versions.lone_requests BEFORE [AFTER] [--side 512] [--format png] [--blocks 100]

A revision is a name that git knows; "." (the default of AFTER) is the working tree. Each has a server with the fake
engine, front ends and an engine process. Both run at once and alternately get a few inpaint requests (a block), one
after the other over one connection; the order within a pair of blocks changes. The engine's time (`infer` of
Server-Timing), which the fake engine spends with numpy, is subtracted from the time of each request. Printed:
percentiles over all requests of a side, the means of the blocks' medians, the ratio after/before of paired blocks with
its 95 % interval, its median and quartiles, and the load average. A front end has one codec thread, as on a machine
with as many front ends as cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.inputs import ONE_HOLE, THREE_HOLES, inpaint_body
from benchmarks.harness.machine import load_average, machine_facts
from benchmarks.harness.percentile import percentile
from benchmarks.harness.processes import Server, retouch_is_ready
from benchmarks.harness.ratios import print_ratios, ratio_of
from benchmarks.harness.raw_http import Client, Reply, encode
from benchmarks.versions.checkout import source_of
from benchmarks.versions.loop_cost import ask, serving
from retouch.bench.load import run_on_uvloop

_INFER = re.compile(r"\binfer;dur=([\d.]+)")
_WARM_UP = 100


def engine_s(reply: Reply) -> float:
    """Return the seconds that the engine took.

    Raises:
        SystemExit: the reply does not say so.
    """
    found = _INFER.search(reply.headers.get("server-timing", ""))
    if reply.status != 200 or found is None:
        raise SystemExit(f"a request failed: {reply.status} {reply.body[:500]!r}")
    return float(found[1]) / 1e3


async def send_block(client: Client, request: bytes, count: int) -> list[float]:
    """Send requests one after the other; returns the seconds of each without the engine's."""
    taken = []
    for _ in range(count):
        sent = time.perf_counter()
        reply = await client.send(request)
        taken.append(time.perf_counter() - sent - engine_s(reply))
    return taken


async def measure(servers: Sequence[Server], request: bytes, blocks: int, count: int) -> list[list[list[float]]]:
    """Return for both servers the seconds of every request in each block."""
    clients = [server.client() for server in servers]
    for client, server in zip(clients, servers, strict=True):
        await server.until_ready(retouch_is_ready)
        await ask(client, request, 1, _WARM_UP)
    latencies_s: list[list[list[float]]] = [[], []]
    for number in range(blocks):
        for side in (0, 1) if number % 2 else (1, 0):
            latencies_s[side].append(await send_block(clients[side], request, count))
    for client in clients:
        client.close()
    await asyncio.sleep(0)  # connections close in the loop's next iteration
    return latencies_s


def report(latencies_s: Sequence[Sequence[Sequence[float]]]) -> None:
    """Print percentiles and ratios of both sides, each with the seconds of all requests by block."""
    for name, blocks in zip(("before", "after"), latencies_s, strict=True):
        taken = [seconds for one in blocks for seconds in one]
        at = ", ".join(f"p{share * 100:.0f} {percentile(taken, share) * 1e3:.2f}" for share in (0.1, 0.25, 0.5, 0.9))
        print(f"{name}: {at} ({len(taken)} requests)")
    before, after = ([statistics.median(one) * 1e3 for one in blocks] for blocks in latencies_s)
    print_ratios("medians of blocks", ("before", "after"), {"ms": ratio_of(before, after)})
    quarters = statistics.quantiles((b / a for a, b in zip(before, after, strict=True)), n=4)
    print("after/before: median {1:.3f}, quartiles {0:.3f} and {2:.3f}".format(*quarters))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="revision to compare with")
    parser.add_argument("after", nargs="?", default=".", help="revision to judge")
    parser.add_argument("--side", type=int, default=512, help="side of the pictures in pixels")
    parser.add_argument("--format", choices=("jpeg", "png", "webp"), default="jpeg", help="format of the reply")
    parser.add_argument("--one-hole", action="store_true", help="a mask with a hole in the middle, instead of three")
    parser.add_argument("--workers", type=int, default=1, help="front-end processes")
    parser.add_argument(
        "--codec-threads", type=int, default=1, help="codec threads of each front end; 0: as the server chooses"
    )
    parser.add_argument("--blocks", type=int, default=100, help="blocks of each revision, at least 3")
    parser.add_argument("--requests", type=int, default=5, help="requests of a block")
    options = parser.parse_args()
    holes = ONE_HOLE if options.one_hole else THREE_HOLES
    request = encode("/v1/inpaint", *inpaint_body(options.side, holes, format=options.format))
    more = {"codec_threads": options.codec_threads} if options.codec_threads else {}
    load = load_average()
    with contextlib.ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="retouch-lone-", ignore_cleanup_errors=True)
        name, servers = stack.enter_context(temporary), list[Server]()
        for number, revision in enumerate((options.before, options.after)):
            (folder := Path(name) / str(number)).mkdir()
            source = source_of(revision, folder)
            servers.append(stack.enter_context(serving(source, folder, options.side, options.workers, **more)))
        latencies_s = run_on_uvloop(measure(servers, request, options.blocks, options.requests))
    print(f"{machine_facts()['processor']}, load {load} before, {load_average()} after; ms beyond the engine")
    report(latencies_s)


if __name__ == "__main__":
    main()
