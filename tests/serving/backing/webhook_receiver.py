"""A webhook receiver on loopback, ended jobs to announce to it, and the deliverers that send the webhooks."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from service.jobs import jobs_table, webhook_table
from service.jobs.delivery.sender import Deliverer
from service.jobs.jobs_table import Job
from service.jobs.name_lookup import NameLookup
from service.jobs.webhook_signing import Secrets
from service.jobs.webhook_targets import Destinations, Resolve
from service.ledger.contract import Transaction
from service.ledger.database import Database
from service.ledger.sqlite_file import LEDGER_FILE, SqliteFile
from tests.fakes.clock import Clock

KEY = bytes(range(32))


@dataclass
class Receiver:
    """Answers with the next of `statuses`, or 204 when they are used up; with `hangs` only after `let_go`."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    got: list[tuple[dict[str, str], str]] = field(default_factory=list)
    before_answering: Callable[[], object] = lambda: None
    hangs: bool = False
    waiting: int = 0
    most_waiting: int = 0
    may_go: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def let_go(self, messages: int = 1000) -> None:
        for _ in range(messages):
            self.may_go.release()

    async def answer(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.text()))
        self.before_answering()
        if self.hangs:
            self.waiting += 1
            self.most_waiting = max(self.waiting, self.most_waiting)
            try:
                await self.may_go.acquire()
            finally:  # also when the sender gives up and the wait is cancelled
                self.waiting -= 1
        status = self.statuses.pop(0) if self.statuses else 204
        return web.Response(status=status, headers={"Location": self.url} if 300 <= status < 400 else {})


@asynccontextmanager
async def receiving(**fields: Any) -> AsyncIterator[Receiver]:
    one, app = Receiver(**fields), web.Application()
    app.router.add_post("/{hook:.*}", one.answer)
    async with TestServer(app) as server:
        one.url = str(server.make_url("/hook"))
        yield one
        one.let_go()


ALL = ["succeeded", "failed", "cancelled"]


class Outcomes(Counter[str]):
    def webhook_attempted(self, outcome: str) -> None:
        self[outcome] += 1


@asynccontextmanager
async def deliverer(
    root: Path, clock: Clock, destinations: Destinations | None = None, resolve: Resolve | None = None
) -> AsyncIterator[Deliverer]:
    with Database(SqliteFile(root / LEDGER_FILE, [jobs_table.SCHEMA, webhook_table.SCHEMA])) as ledger:
        allowed = destinations or Destinations(private=True)
        yield Deliverer(ledger, Secrets([KEY]), allowed, Outcomes(), clock, resolve or NameLookup())


def ended(url: str, status: Any = "succeeded", events: list[str] | None = None) -> Job:
    facts = {"webhook": url, "webhook_events": events or ALL}
    return Job("j1", status, "owner", 1.0, facts, finished_at=2.0, result_urls=["/v1/results/r1"])


def outcomes(one: Deliverer) -> Outcomes:
    assert isinstance(one.observer, Outcomes)
    return one.observer


async def announce(one: Deliverer, job: Job) -> None:
    """End the job, as `Jobs` does."""

    def end(ledger: Transaction) -> None:
        jobs_table.insert(ledger, replace(job, status="running"), 100)
        jobs_table.finish(ledger, job)
        one.enqueue_job_ended(ledger, job)

    await one.ledger.write(end)


async def announce_many(one: Deliverer, receiver: Receiver, host: str, messages: int) -> None:
    """End `messages` jobs, whose webhooks go to the receiver by the name `HOST.test`."""
    for index in range(messages):
        url = receiver.url.replace("127.0.0.1", f"{host}.test")
        await announce(one, replace(ended(f"{url}/{index}"), id=f"{host}{index}"))


def found(address: str, port: int) -> list[Any]:
    """Return a resolver's result for one address, in the form of `socket.getaddrinfo`."""
    return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))]


async def on_loopback(_host: str, port: int, _family: int) -> list[Any]:
    """Resolve every name to 127.0.0.1."""
    return found("127.0.0.1", port)


async def webhook_state(one: Deliverer, job_id: str = "j1") -> dict[str, Any] | None:
    """Return the `webhook` part of the job's document; None for a job without a webhook."""
    job = await one.ledger.read(lambda ledger: jobs_table.find(ledger, job_id))
    assert job is not None
    webhook = job.reply().webhook
    return None if webhook is None else webhook.model_dump()
