"""Injects faults in a fleet: hosts, network, database, bucket and clocks fail in turn, and every reply is recorded.

    python -m benchmarks.faults.fleet [--requests 20000] [--nodes 3] [--clients 128] [--promise store] [--json FILE]

Runs several nodes (`retouch serve`, fake engine, saving on), each with its own folder, clock and network namespace; a
PostgreSQL server with a synchronous standby; and an S3 server. Database and S3 server have namespaces too. Needs root,
iproute2, PostgreSQL and a C compiler. Half of the requests are jobs with a webhook, half are answered at once; each
has an `Idempotency-Key`, goes to a random node, and is repeated at other nodes with the same key until it is answered.
Jobs are polled at random nodes.

Reported: requests lost (no picture within two minutes, or a failed job), answered twice (two different replies for one
key), keys for which two jobs ran, promised results that a node cannot send afterwards, webhooks that never arrived, and
webhooks that arrived twice. The last are counted separately if the sender was killed after the webhook arrived and
before it could record the arrival, which no sender can prevent. `--trace` writes the events before each of these.
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

from benchmarks.faults.fleet_clients import Clients, Receiver, missing_results
from benchmarks.faults.fleet_faults import Faults
from benchmarks.faults.fleet_verdict import messages_of, traces, verdict
from benchmarks.harness.inputs import photo_and_mask
from tests.service.fleet.hosts import FleetOfHosts, running_hosts

_TRY_TIMEOUT_S = 8.0
_REQUEST_PAUSE_S = (0.1, 0.5)
_LAST_WEBHOOKS_S = 75.0
"""Seconds to wait for webhooks at the end: longer than a message's lease, after which another process sends it."""
_SECRET = "whsec_" + "QUFB" * 12


async def run(
    requests: int, at_once: int, hosts: FleetOfHosts, receiver: Receiver
) -> tuple[dict[str, object], list[str]]:
    """Send all requests while faults happen; returns the verdict, and the events before each count that should be 0."""
    chance, stop, begun = random.Random(1), asyncio.Event(), time.monotonic()
    photo, mask = photo_and_mask(64)
    files = {"image": ("a.jpg", photo, "image/jpeg"), "mask": ("b.png", mask, "image/png")}
    timeout = httpx.Timeout(_TRY_TIMEOUT_S, connect=5.0)
    async with httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=4 * at_once)) as http:
        clients = Clients(hosts.fleet, http, receiver.record, chance, files, receiver.url)
        faults = Faults(hosts, chance)
        failing = asyncio.create_task(faults.run(stop))
        places = asyncio.Semaphore(at_once)

        async def run_after_pause(work: Callable[[], Awaitable[None]]) -> None:
            async with places:
                await work()
                await asyncio.sleep(chance.uniform(*_REQUEST_PAUSE_S))

        await asyncio.gather(
            *(run_after_pause(clients.job if number % 2 else clients.picture) for number in range(requests))
        )
        sent_s = time.monotonic() - begun
        stop.set()
        await failing
        missing = await missing_results(hosts.fleet, http, receiver.record.promised)
        await asyncio.sleep(_LAST_WEBHOOKS_S)
    undelivered = messages_of(receiver.record) - set(receiver.record.webhooks)
    found = verdict(receiver.record, faults.done, missing, undelivered)
    return {"seconds": round(sent_s, 1), **found}, traces(receiver.record, faults.done, missing, undelivered)


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
            found, traced = await run(options.requests, options.clients, hosts, receiver)
        finally:
            await runner.cleanup()
            if options.logs:
                options.logs.mkdir(parents=True, exist_ok=True)
                for node in hosts.fleet.nodes:
                    (options.logs / f"{node.folder.name}.log").write_text(node.log)
    found = {"requests": options.requests, **found}
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.trace:
        options.trace.write_text("".join(f"{line}\n" for line in traced))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="number of requests")
    parser.add_argument("--nodes", type=int, default=3, help="number of nodes")
    parser.add_argument("--clients", type=int, default=128, help="maximum number of requests at a time")
    parser.add_argument("--promise", choices=("spool", "store"), default="spool", help="--promise of retouch serve")
    parser.add_argument("--json", type=Path, help="file for the verdict")
    parser.add_argument("--trace", type=Path, help="file for the events before each count that should be 0")
    parser.add_argument("--logs", type=Path, help="folder for the logs of the nodes")
    asyncio.run(_main(parser.parse_args()))
