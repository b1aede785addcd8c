"""Delivers webhooks: at least once, in no particular order, with growing pauses, through restarts."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol
from urllib.parse import urlsplit

import aiohttp
import structlog

from service.errors import InvalidOption
from service.jobs import deliveries, webhooks
from service.jobs.deliveries import Delivery
from service.jobs.destinations import CheckedResolver, Destinations
from service.jobs.table import Job
from service.jobs.webhooks import Secrets
from service.ledger.database import Database

_log = structlog.get_logger(__name__)
RETRY_AFTER_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0)
"""As Standard Webhooks proposes it, about 31 hours in all; given up after the last."""
_GONE = 410
_AT_ONCE = 16
_TIMEOUT = aiohttp.ClientTimeout(total=15.0)
_LEASE_S = 60.0
"""Longer than a try may take: then the process that took a message is dead, and another one may."""
Outcome = Literal["delivered", "failed", "given_up"]


class DeliveryObserver(Protocol):
    """Told about every try, on the event loop."""

    def webhook_tried(self, outcome: Outcome) -> None:
        """One try ended."""


@dataclass(frozen=True, slots=True)
class Deliverer:
    """Sends what is due. Used on the event loop."""

    ledger: Database
    secrets: Secrets
    destinations: Destinations
    observer: DeliveryObserver
    now: Callable[[], float]
    new_id: Callable[[], str]
    retry_after_s: Sequence[float] = RETRY_AFTER_S

    def announce(self, ledger: sqlite3.Connection, job: Job) -> None:
        """Enter the message that a job has ended, if its request asked for it; in the transaction that ends it."""
        url = job.facts.get("webhook")
        if url is not None and job.status in job.facts["webhook_events"]:
            message = Delivery(f"msg_{self.new_id()}", url, webhooks.payload(job), self.now())
            deliveries.add(ledger, message)

    async def deliver_due(self) -> int:
        """Try what is due once; how many messages that were."""
        if not await self.ledger.read(partial(deliveries.is_due, now=self.now())):
            return 0
        take = partial(deliveries.take, now=self.now(), again_at=self.now() + _LEASE_S, most=_AT_ONCE)
        due = await self.ledger.write(take)
        connector = aiohttp.TCPConnector(resolver=CheckedResolver(self.destinations), force_close=True)
        async with aiohttp.ClientSession(
            connector=connector, timeout=_TIMEOUT, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            await asyncio.gather(*(self._try(session, one) for one in due))
        return len(due)

    async def _try(self, session: aiohttp.ClientSession, message: Delivery) -> None:
        status, why = await self._post(session, message)
        if 200 <= status < 300:
            outcome: Outcome = "delivered"
        elif status == _GONE or message.tries > len(self.retry_after_s):
            outcome = "given_up"
        else:
            outcome = "failed"
        if outcome == "failed":
            next_at = self.now() + self.retry_after_s[message.tries - 1]
            await self.ledger.write(partial(deliveries.postpone, delivery_id=message.id, next_at=next_at))
        else:
            await self.ledger.write(partial(deliveries.remove, delivery_id=message.id))
        level = _log.debug if outcome == "delivered" else _log.warning
        host = urlsplit(message.url).hostname  # the rest may hold what is nobody's business
        level("webhook", id=message.id, host=host, outcome=outcome, tries=message.tries, status=status, reason=why)
        self.observer.webhook_tried(outcome)

    async def _post(self, session: aiohttp.ClientSession, message: Delivery) -> tuple[int, str]:
        """The status, or 0 and why there is none."""
        try:
            self.destinations.check(message.url)
            headers = webhooks.headers(self.secrets, message.id, int(self.now()), message.body)
            async with session.post(
                message.url, data=message.body.encode(), headers=headers, allow_redirects=False
            ) as response:
                return response.status, ""
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, InvalidOption, ValueError) as error:
            return 0, type(error).__name__
