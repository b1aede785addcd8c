"""Clients of a fleet that repeat a request until it is answered, their record, and the receiver of their webhooks.

The URL of each job's webhook contains the client's key, so that the receiver sees every job that was made for a key.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

import httpx
from aiohttp import web

from tests.service.fleet.nodes import ASYNC, PATH, Fleet

_TIMEOUT_S = 120.0
_TRIES_SHOWN = 40
_POLL_S = (0.25, 0.75)
_READERS = 16


@dataclass(frozen=True, slots=True)
class Arrival:
    """A webhook that arrived, at a time of the monotonic clock, from a node's address."""

    at: float
    sender: str


@dataclass(slots=True)
class Record:
    """Requests that clients sent, and their replies."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    promised: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)
    webhooks: dict[str, list[Arrival]] = field(default_factory=dict)
    """Arrivals of each message, by its id, which contains the job's."""
    jobs_of_key: dict[str, set[str]] = field(default_factory=dict)
    """Ids of the messages about jobs of one key."""


@dataclass(slots=True)
class Clients:
    """Clients that repeat each request until they have its picture."""

    fleet: Fleet
    http: httpx.AsyncClient
    record: Record
    chance: random.Random
    files: dict[str, tuple[str, bytes, str]]
    hook: str

    async def picture(self) -> None:
        """Request one picture that is answered at once."""
        reply = await self._until_answered(uuid4().hex, {}, {})
        if reply is not None:
            self.record.promised.add(reply.headers["location"])

    async def job(self) -> None:
        """Request one job, and poll it to its end."""
        key = uuid4().hex
        reply = await self._until_answered(key, ASYNC, {"webhook": f"{self.hook}{key}"})
        if reply is None:
            return
        place, end = reply.headers["location"], time.monotonic() + _TIMEOUT_S
        self.record.jobs.add(place)
        tries: list[str] = []
        while time.monotonic() < end:
            await asyncio.sleep(self.chance.uniform(*_POLL_S))
            state = await self._ask("GET", place, tries)
            if state is None:
                continue
            if state.status_code == 200 and state.json()["status"] == "succeeded":
                self.record.promised.update(state.json()["result_urls"])
                return
            if state.status_code == 404 or (state.status_code == 200 and state.json()["status"] == "failed"):
                break
        self.record.lost.append(f"{key}, accepted as {place}: {_last(tries)}")

    async def _until_answered(self, key: str, headers: dict[str, str], data: dict[str, str]) -> httpx.Response | None:
        """Return the answer to a request with a key; one of five is sent again, and must get the same answer."""
        end, first = time.monotonic() + _TIMEOUT_S, None
        tries: list[str] = []
        while time.monotonic() < end:
            reply = await self._ask("POST", PATH, tries, headers={"Idempotency-Key": key, **headers}, data=data)
            self.record.statuses[reply.status_code if reply is not None else 0] += 1
            if reply is not None and reply.status_code in (200, 202):
                if first is not None:
                    if first.headers["location"] != reply.headers["location"] or first.content != reply.content:
                        self.record.twice.append(f"{key}: {_last(tries)}")
                    return first
                first = reply
                if self.chance.random() > 0.2:
                    return first
                continue
            await asyncio.sleep(self.chance.uniform(0.1, 0.6))
        if first is None:
            self.record.lost.append(f"{key}: {_last(tries)}")
        return first

    async def _ask(self, method: str, path: str, tries: list[str], **fields: object) -> httpx.Response | None:
        """Send a request to a random node and record its answer; None if there is none."""
        number = self.chance.randrange(len(self.fleet.nodes))
        files = self.files if method == "POST" else None
        sent, reply = time.monotonic(), None
        try:
            reply = await self.http.request(method, f"{self.fleet.url(number)}{path}", files=files, **fields)
            result = f"{reply.status_code} {reply.headers.get('location') or _reason(reply)}"
        except httpx.HTTPError as error:
            result = type(error).__name__
        tries.append(f"{sent:.1f} to {time.monotonic():.1f} node {number} {result}")
        return reply


def _reason(reply: httpx.Response) -> str:
    """Return the code and the state in a JSON reply."""
    with suppress(ValueError, AttributeError):
        return f"{reply.json().get('code')} {reply.json().get('status')}"
    return ""


def _last(tries: list[str]) -> str:
    return "; ".join(tries[-_TRIES_SHOWN:])


async def missing_results(fleet: Fleet, http: httpx.AsyncClient, promised: set[str]) -> list[str]:
    """Return the promised results that a node still cannot send after two minutes of retries."""
    left, end = {(url, node) for url in promised for node in range(len(fleet.nodes))}, time.monotonic() + 120.0
    attempts = 0
    while left and (time.monotonic() < end or not attempts):
        waiting = iter(sorted(left))

        async def ask(waiting: Iterator[tuple[str, int]] = waiting) -> None:
            for url, node in waiting:
                with suppress(httpx.HTTPError):
                    if (await http.get(f"{fleet.url(node)}{url}")).status_code == 200:
                        left.discard((url, node))

        await asyncio.gather(*(ask() for _ in range(_READERS)))
        attempts += 1
    return [f"{url} at node {node}" for url, node in sorted(left)]


@dataclass(slots=True)
class Receiver:
    """Receiver of webhooks, which counts each message."""

    record: Record = field(default_factory=Record)
    url: str = ""

    async def start(self, address: str) -> web.AppRunner:
        """Listen on a free port of an address."""
        application = web.Application()
        application.router.add_post("/{key}", self._receive)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, address, 0).start()
        self.url = f"http://{address}:{runner.addresses[0][1]}/"
        return runner

    async def _receive(self, request: web.Request) -> web.Response:
        name, sender = request.headers["webhook-id"], request.remote or ""
        self.record.webhooks.setdefault(name, []).append(Arrival(time.monotonic(), sender))
        self.record.jobs_of_key.setdefault(request.match_info["key"], set()).add(name)
        return web.Response(status=204)
