"""Faults in a fleet: its hosts, network, database, bucket and clocks fail in turn under a record of every client.

    python -m benchmarks.faults.fleet [--requests 20000] [--nodes 3] [--clients 128] [--promise store] [--json FILE]

Runs `retouch serve` (fake engine, saving on) as processes with folders, clocks and network namespaces of their own, a
PostgreSQL server with a standby that commits wait for, and an S3 server, each in a namespace of its own; needs root,
iproute2, PostgreSQL and a C compiler. Half of the requests are jobs with a webhook, half are answered at once; each
has an `Idempotency-Key`, goes to a random node, and is sent again to another with the same key until it is answered.
Jobs are polled at random nodes.

Reported: requests lost (no picture within two minutes, or a job that failed), answered twice (two results or two jobs
for one key), promised results that a node cannot send afterwards, webhooks that arrived twice or never, and jobs that
ran although their request was refused, as the database went away between their commit and its answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import httpx

from benchmarks.faults.fleet_clients import Clients, Receiver, Record, missing_results
from benchmarks.faults.fleet_faults import Faults
from benchmarks.harness.inputs import photo_and_mask
from tests.service.fleet.hosts import FleetOfHosts, running_hosts

_TRY_TIMEOUT_S = 8.0
_BETWEEN_REQUESTS_S = (0.1, 0.5)
_LAST_WEBHOOKS_S = 90.0
"""More than the lease of a message, after which another process sends it."""
_SECRET = "whsec_" + "QUFB" * 12


async def run(requests: int, at_once: int, hosts: FleetOfHosts, receiver: Receiver) -> dict[str, object]:
    """Send all requests while faults happen; the verdict."""
    chance, stop, begun = random.Random(1), asyncio.Event(), time.monotonic()
    photo, mask = photo_and_mask(64)
    files = {"image": ("a.jpg", photo, "image/jpeg"), "mask": ("b.png", mask, "image/png")}
    timeout = httpx.Timeout(_TRY_TIMEOUT_S, connect=5.0)
    async with httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=4 * at_once)) as http:
        clients = Clients(hosts.fleet, http, receiver.record, chance, files, receiver.url)
        faults = Faults(hosts, chance)
        failing = asyncio.create_task(faults.run(stop))
        places = asyncio.Semaphore(at_once)

        async def one(work: Callable[[], Awaitable[None]]) -> None:
            async with places:
                await work()
                await asyncio.sleep(chance.uniform(*_BETWEEN_REQUESTS_S))

        await asyncio.gather(*(one(clients.job if number % 2 else clients.picture) for number in range(requests)))
        sent_s = time.monotonic() - begun
        stop.set()
        await failing
        missing = await missing_results(hosts.fleet, http, receiver.record.promised)
    untold = await _webhooks_that_never_came(receiver.record)
    return {"seconds": round(sent_s, 1), "faults": dict(faults.done), **_verdict(receiver.record, missing, untold)}


async def _webhooks_that_never_came(record: Record) -> set[str]:
    """Messages of accepted jobs that have not arrived some time after the last request."""
    told, end = _messages_of(record), time.monotonic() + _LAST_WEBHOOKS_S
    while told - set(record.webhooks) and time.monotonic() < end:  # noqa: ASYNC110 -- a last look
        await asyncio.sleep(0.2)
    return told - set(record.webhooks)


def _messages_of(record: Record) -> set[str]:
    return {f"msg_{place.rpartition('/')[2]}" for place in record.jobs}


def _verdict(record: Record, missing: list[str], untold: set[str]) -> dict[str, object]:
    again = sorted(round(times[1] - times[0], 1) for times in record.webhooks.values() if len(times) > 1)
    return {
        "statuses": {str(status): count for status, count in sorted(record.statuses.items())},
        "lost": len(record.lost),
        "answered_twice": len(record.twice),
        "promised": len(record.promised),
        "missing": len(missing),
        "jobs": len(record.jobs),
        "webhooks_twice": len(again),
        "seconds_until_webhooks_came_again": again,
        "webhooks_never": len(untold),
        "jobs_nobody_was_told_of": len(set(record.webhooks) - _messages_of(record)),
        "examples": [*record.lost[:5], *record.twice[:5], *missing[:5], *sorted(untold)[:5]],
    }


async def _main(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        secret = folder / "secret"
        secret.write_text(_SECRET)
        settings = {"webhook_secret_file": secret, "webhook_private": True, "fake_batch_ms": 5}
        settings["promise"] = options.promise
        hosts = stack.enter_context(running_hosts(folder, options.nodes, **settings))
        receiver = Receiver()
        runner = await receiver.start(hosts.network.address)
        try:
            verdict = {"requests": options.requests, **await run(options.requests, options.clients, hosts, receiver)}
        finally:
            await runner.cleanup()
            if options.logs:
                options.logs.mkdir(parents=True, exist_ok=True)
                for node in hosts.fleet.nodes:
                    (options.logs / f"{node.folder.name}.log").write_text(node.log)
    print(json.dumps(verdict, indent=1))
    if options.json:
        options.json.write_text(json.dumps(verdict, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--clients", type=int, default=128, help="most requests at a time")
    parser.add_argument("--promise", choices=("spool", "store"), default="spool", help="as of retouch serve")
    parser.add_argument("--json", type=Path, help="file for the verdict")
    parser.add_argument("--logs", type=Path, help="folder for the logs of the nodes")
    asyncio.run(_main(parser.parse_args()))
