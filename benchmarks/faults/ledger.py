"""The record of all requests, replies and promised results of a run, from which its verdict follows."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.harness.metric_totals import metrics_page, total_in
from benchmarks.harness.raw_http import Client, Reply, encode

AGAIN = (0, 409, 429, 500, 503, 504)
"""Statuses after which a client repeats its request; 0: the connection ended without an answer."""


@dataclass(slots=True)
class Exchange:
    """One request of one client, with all its tries; `key` is its Idempotency-Key."""

    key: str
    sent_at: float
    done_at: float = 0.0
    tries: list[int] = field(default_factory=list)
    final: int = 0
    hung: bool = False
    """Whether a try got neither an answer nor the end of its connection in time."""
    locations: set[str] = field(default_factory=set)
    digest: str = ""


@dataclass(slots=True)
class Ledger:
    """The record of all exchanges of a run."""

    exchanges: list[Exchange] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    """Descriptions of answers that no client should get."""

    def verdict(self) -> dict[str, object]:
        """Return the counts that decide about a run, except for the promised results, which need the server."""
        return {
            "requests": len(self.exchanges),
            "tries": sum(len(exchange.tries) for exchange in self.exchanges),
            "answers": {str(status): n for status, n in sorted(self._statuses().items())},
            "lost": sum(exchange.final != 200 for exchange in self.exchanges),
            "hung": sum(exchange.hung for exchange in self.exchanges),
            "odd": len(self.odd),
        }

    def _statuses(self) -> Counter[int]:
        return Counter(status for exchange in self.exchanges for status in exchange.tries)

    def good_between(self, begin: float, end: float) -> list[float]:
        """Return the latencies in seconds of exchanges that began in [begin, end) and succeeded at the first try."""
        chosen = (e for e in self.exchanges if begin <= e.sent_at < end and e.tries == [200])
        return [exchange.done_at - exchange.sent_at for exchange in chosen]

    def begun_between(self, begin: float, end: float) -> int:
        return sum(begin <= exchange.sent_at < end for exchange in self.exchanges)


@dataclass(frozen=True, slots=True)
class Asker:
    """A client that repeats a request with the same key until it has a reply."""

    client: Callable[[], Client]
    """Returns the current client: the server may be restarted on another port."""
    path: str
    content_type: str
    body: bytes
    ledger: Ledger
    timeout_s: float
    """Maximum seconds of one try."""
    total_timeout_s: float
    """Maximum seconds of all tries together."""

    async def ask(self) -> None:
        """Run one exchange."""
        exchange = Exchange(uuid.uuid4().hex, time.monotonic())
        self.ledger.exchanges.append(exchange)
        headers = {"Idempotency-Key": exchange.key, "X-Request-ID": exchange.key}
        request = encode(self.path, self.content_type, self.body, headers)
        while exchange.final != 200 and time.monotonic() < exchange.sent_at + self.total_timeout_s:
            reply = await self._send_once(exchange, request)
            exchange.tries.append(reply.status)
            exchange.done_at = time.monotonic()
            if reply.status == 200:
                exchange.final = 200
                exchange.locations.add(reply.headers["location"])
                exchange.digest = hashlib.sha256(reply.body).hexdigest()
            elif reply.status in AGAIN:
                await asyncio.sleep(min(5.0, float(reply.headers.get("retry-after", "0.2"))))
            else:
                exchange.final = reply.status
                self.ledger.odd.append(f"{reply.status} {reply.body[:200]!r}")
                return

    async def _send_once(self, exchange: Exchange, request: bytes) -> Reply:
        try:
            return await asyncio.wait_for(self.client().send(request), self.timeout_s)
        except asyncio.TimeoutError:
            exchange.hung = True
            return Reply(0, {}, b"", "hung")

    async def send_again(self, exchange: Exchange) -> None:
        """Send an answered request again: the same key must give the same result."""
        headers = {"Idempotency-Key": exchange.key}
        reply = await self.client().send(encode(self.path, self.content_type, self.body, headers))
        if reply.status == 200:
            exchange.locations.add(reply.headers["location"])


async def missing_results(ledger: Ledger, client: Client, total_timeout_s: float = 60.0) -> list[str]:
    """Return the promised results that cannot be read or differ from the reply."""
    promised = {location: e.digest for e in ledger.exchanges for location in e.locations if e.digest}
    end = time.monotonic() + total_timeout_s
    while True:
        left, missing = list(promised.items()), {}  # type: ignore[var-annotated]
        await asyncio.gather(*(_check_results(client, left, missing) for _ in range(8)))
        if not missing or time.monotonic() > end:
            return [f"{location}: {status}" for location, status in missing.items()]
        promised = {location: promised[location] for location in missing}
        await asyncio.sleep(1.0)


async def _check_results(client: Client, left: list[tuple[str, str]], missing: dict[str, int]) -> None:
    while left:
        location, digest = left.pop()
        reply = await client.get(location)
        if reply.status != 200 or hashlib.sha256(reply.body).hexdigest() != digest:
            missing[location] = reply.status


async def unsaved(client: Client) -> int:
    """Return the number of results waiting to be saved, from the metrics."""
    return int(total_in(await metrics_page(client), "retouch_spool_items"))
