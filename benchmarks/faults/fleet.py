"""Faults in a fleet: hosts killed and frozen, the database restarted and crashed, under a record of every client.

    .venv/bin/python -m benchmarks.faults.fleet [--requests 2000] [--nodes 3] [--json FILE]

Runs `retouch serve` (fake engine, saving on) as processes with folders of their own, one PostgreSQL and one S3 server.
Half of the requests are jobs with a webhook, half are answered at once; each has an `Idempotency-Key`, goes to a
random node, and is sent again to another with the same key until it is answered. Jobs are polled at random nodes.
Reported: requests lost (no picture within two minutes, or a job that failed), answered twice (two results or two jobs
for one key), promised results that a node cannot send afterwards, webhooks that arrived twice or never, and jobs that
ran although their request was refused, as the database went away between their commit and its answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx
from aiohttp import web

from benchmarks.harness.inputs import photo_and_mask
from tests.service.fleet.nodes import ASYNC, PATH, Fleet, running_fleet
from tests.serving.postgres_server import PostgresCluster, running_postgres

_PATIENCE_S = 120.0
_TRY_TIMEOUT_S = 45.0
_POLL_S = 0.25
_BETWEEN_FAULTS_S = 4.0
_SECRET = "whsec_" + "QUFB" * 12


@dataclass(slots=True)
class Record:
    """Requests that clients sent, and their replies."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    promised: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)
    webhooks: Counter[str] = field(default_factory=Counter)
    """By the id of the message, which has the job's."""


@dataclass(slots=True)
class Clients:
    """Clients that come back until they have what they asked for."""

    fleet: Fleet
    http: httpx.AsyncClient
    record: Record
    chance: random.Random
    files: dict[str, tuple[str, bytes, str]]
    hook: str

    async def picture(self) -> None:
        """Ask for one picture, answered at once."""
        reply = await self._until_answered({"Idempotency-Key": uuid4().hex}, {})
        if reply is not None:
            self.record.promised.add(reply.headers["location"])

    async def job(self) -> None:
        """Ask for one job, and poll it to its end."""
        reply = await self._until_answered({"Idempotency-Key": uuid4().hex, **ASYNC}, {"webhook": self.hook})
        if reply is None:
            return
        place, end = reply.headers["location"], time.monotonic() + _PATIENCE_S
        self.record.jobs.add(place)
        while time.monotonic() < end:
            await asyncio.sleep(_POLL_S)
            state = await self._ask("GET", place)
            if state is not None and state.status_code == 200 and state.json()["status"] == "succeeded":
                self.record.promised.update(state.json()["result_urls"])
                return
            if state is not None and (state.status_code == 404 or "failed" in state.text):
                break
        self.record.lost.append(f"{place}: {state.text if state is not None else 'no answer'}")

    async def _until_answered(self, headers: dict[str, str], data: dict[str, str]) -> httpx.Response | None:
        """The answer to a request with a key; once more to another node, to see that it is the same."""
        end, first = time.monotonic() + _PATIENCE_S, None
        while time.monotonic() < end:
            reply = await self._ask("POST", PATH, headers=headers, data=data)
            self.record.statuses[reply.status_code if reply is not None else 0] += 1
            if reply is not None and reply.status_code in (200, 202):
                if first is not None:
                    if first.headers["location"] != reply.headers["location"] or first.content != reply.content:
                        self.record.twice.append(headers["Idempotency-Key"])
                    return first
                first = reply
                if self.chance.random() > 0.2:
                    return first
                continue
            await asyncio.sleep(self.chance.uniform(0.1, 0.6))
        if first is None:
            self.record.lost.append(f"{headers}: {reply.text if reply is not None else 'no answer'}")
        return first

    async def _ask(self, method: str, path: str, **fields: object) -> httpx.Response | None:
        """Ask a random node; None without an answer."""
        url = self.fleet.url(self.chance.randrange(len(self.fleet.nodes)))
        files = self.files if method == "POST" else None
        with suppress(httpx.HTTPError):
            return await self.http.request(method, f"{url}{path}", files=files, **fields)
        return None


@dataclass(slots=True)
class Faults:
    """Faults, one after the other; each ends with everything as before."""

    fleet: Fleet
    postgres: PostgresCluster
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)

    async def run(self, stop: asyncio.Event) -> None:
        """Cause faults until the event is set."""
        kinds = (self.kill_a_node, self.freeze_a_node, self.restart_the_database, self.crash_the_database)
        while not stop.is_set():
            for kind in self.chance.sample(kinds, len(kinds)):
                await asyncio.sleep(_BETWEEN_FAULTS_S)
                if stop.is_set():
                    return
                await kind()
                self.done[kind.__name__] += 1

    async def kill_a_node(self) -> None:
        """SIGKILL; started again after 3 s with its folder."""
        node = self.chance.choice(self.fleet.nodes)
        node.kill()
        await asyncio.sleep(3.0)
        await asyncio.to_thread(node.start)

    async def freeze_a_node(self) -> None:
        """SIGSTOP for 15 s, longer than a lease."""
        number = self.chance.randrange(len(self.fleet.nodes))
        self.fleet.freeze(number)
        await asyncio.sleep(15.0)
        self.fleet.thaw(number)

    async def restart_the_database(self) -> None:
        """All connections are cut; back at once."""
        await asyncio.to_thread(self.postgres.stop)
        await asyncio.to_thread(self.postgres.start)

    async def crash_the_database(self) -> None:
        """SIGQUIT; back after 5 s, with a recovery."""
        await asyncio.to_thread(self.postgres.stop, signal.SIGQUIT)
        await asyncio.sleep(5.0)
        await asyncio.to_thread(self.postgres.start)


async def run(requests: int, fleet: Fleet, postgres: PostgresCluster, receiver: Receiver) -> dict[str, object]:
    """Send all requests while faults happen; the verdict."""
    chance, stop, begun = random.Random(1), asyncio.Event(), time.monotonic()
    photo, mask = photo_and_mask(64)
    files = {"image": ("a.jpg", photo, "image/jpeg"), "mask": ("b.png", mask, "image/png")}
    timeout = httpx.Timeout(_TRY_TIMEOUT_S, connect=5.0)
    async with httpx.AsyncClient(timeout=timeout, limits=httpx.Limits(max_connections=200)) as http:
        clients = Clients(fleet, http, receiver.record, chance, files, receiver.url)
        faults = Faults(fleet, postgres, chance)
        failing = asyncio.create_task(faults.run(stop))
        places = asyncio.Semaphore(16)

        async def one(work: Callable[[], Awaitable[None]]) -> None:
            async with places:
                await work()
                await asyncio.sleep(chance.uniform(0.1, 0.5))

        await asyncio.gather(*(one(clients.job if number % 2 else clients.picture) for number in range(requests)))
        stop.set()
        await failing
        missing = await missing_results(fleet, http, receiver.record.promised)
    record = receiver.record
    end = time.monotonic() + 30.0
    told = {f"msg_{place.rpartition('/')[2]}" for place in record.jobs}
    while told - set(record.webhooks) and time.monotonic() < end:  # noqa: ASYNC110 -- a last look
        await asyncio.sleep(0.2)
    return {
        "requests": requests,
        "seconds": round(time.monotonic() - begun, 1),
        "faults": dict(faults.done),
        "statuses": {str(status): count for status, count in sorted(record.statuses.items())},
        "lost": len(record.lost),
        "answered_twice": len(record.twice),
        "promised": len(record.promised),
        "missing": len(missing),
        "jobs": len(record.jobs),
        "webhooks_twice": sum(count > 1 for count in record.webhooks.values()),
        "webhooks_never": len(told - set(record.webhooks)),
        "jobs_nobody_was_told_of": len(set(record.webhooks) - told),
        "examples": [*record.lost[:5], *record.twice[:5], *missing[:5]],
    }


async def missing_results(fleet: Fleet, http: httpx.AsyncClient, promised: set[str]) -> list[str]:
    """The promised results that a node cannot send within a minute, each asked at every node."""
    left, end = {(url, node) for url in promised for node in range(len(fleet.nodes))}, time.monotonic() + 60.0
    while left and time.monotonic() < end:
        for url, node in list(left):
            with suppress(httpx.HTTPError):
                if (await http.get(f"{fleet.url(node)}{url}")).status_code == 200:
                    left.discard((url, node))
    return [f"{url} at node {node}" for url, node in sorted(left)]


@dataclass(slots=True)
class Receiver:
    """The receiver of webhooks, which counts each message."""

    record: Record = field(default_factory=Record)
    url: str = ""

    async def start(self) -> web.AppRunner:
        """Listen on a free port."""
        application = web.Application()
        application.router.add_post("/", self._receive)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        return runner

    async def _receive(self, request: web.Request) -> web.Response:
        self.record.webhooks[request.headers["webhook-id"]] += 1
        return web.Response(status=204)


async def _main(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        secret = folder / "secret"
        secret.write_text(_SECRET)
        settings = {"webhook_secret_file": secret, "webhook_private": True, "fake_batch_ms": 20}
        postgres = stack.enter_context(running_postgres())
        fleet = stack.enter_context(running_fleet(folder, postgres, options.nodes, **settings))
        receiver = Receiver()
        runner = await receiver.start()
        verdict = await run(options.requests, fleet, postgres, receiver)
        await runner.cleanup()
    print(json.dumps(verdict, indent=1))
    if options.json:
        options.json.write_text(json.dumps(verdict, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asyncio.run(_main(parser.parse_args()))
