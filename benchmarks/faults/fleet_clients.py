"""Clients of a fleet that come back until they are answered, their record, and the receiver of their webhooks."""

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

_PATIENCE_S = 120.0
_POLL_S = (0.25, 0.75)
_READERS = 16


@dataclass(slots=True)
class Record:
    """Requests that clients sent, and their replies."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    promised: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)
    webhooks: dict[str, list[float]] = field(default_factory=dict)
    """Times of arrival in seconds, by the id of the message, which has the job's."""


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
        said = "no answer"
        while time.monotonic() < end:
            await asyncio.sleep(self.chance.uniform(*_POLL_S))
            state = await self._ask("GET", place)
            if state is None:
                continue
            said = state.text
            if state.status_code == 200 and state.json()["status"] == "succeeded":
                self.record.promised.update(state.json()["result_urls"])
                return
            if state.status_code == 404 or (state.status_code == 200 and state.json()["status"] == "failed"):
                break
        self.record.lost.append(f"{place}: {said}")

    async def _until_answered(self, headers: dict[str, str], data: dict[str, str]) -> httpx.Response | None:
        """Answer to a request with a key; one of five is sent once more, to see that the answer is the same."""
        end, first, said = time.monotonic() + _PATIENCE_S, None, "no answer"
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
            said = reply.text if reply is not None else said
            await asyncio.sleep(self.chance.uniform(0.1, 0.6))
        if first is None:
            self.record.lost.append(f"{headers}: {said}")
        return first

    async def _ask(self, method: str, path: str, **fields: object) -> httpx.Response | None:
        """Ask a random node; None without an answer."""
        url = self.fleet.url(self.chance.randrange(len(self.fleet.nodes)))
        files = self.files if method == "POST" else None
        with suppress(httpx.HTTPError):
            return await self.http.request(method, f"{url}{path}", files=files, **fields)
        return None


async def missing_results(fleet: Fleet, http: httpx.AsyncClient, promised: set[str]) -> list[str]:
    """Promised results that some node cannot send; asked again for two minutes, each at every node."""
    left, end = {(url, node) for url in promised for node in range(len(fleet.nodes))}, time.monotonic() + 120.0
    asked = 0
    while left and (time.monotonic() < end or not asked):
        waiting = iter(sorted(left))

        async def ask(waiting: Iterator[tuple[str, int]] = waiting) -> None:
            for url, node in waiting:
                with suppress(httpx.HTTPError):
                    if (await http.get(f"{fleet.url(node)}{url}")).status_code == 200:
                        left.discard((url, node))

        await asyncio.gather(*(ask() for _ in range(_READERS)))
        asked += 1
    return [f"{url} at node {node}" for url, node in sorted(left)]


@dataclass(slots=True)
class Receiver:
    """Receiver of webhooks, which counts each message."""

    record: Record = field(default_factory=Record)
    url: str = ""

    async def start(self, address: str) -> web.AppRunner:
        """Listen on a free port of an address."""
        application = web.Application()
        application.router.add_post("/", self._receive)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, address, 0).start()
        self.url = f"http://{address}:{runner.addresses[0][1]}/"
        return runner

    async def _receive(self, request: web.Request) -> web.Response:
        self.record.webhooks.setdefault(request.headers["webhook-id"], []).append(time.monotonic())
        return web.Response(status=204)
