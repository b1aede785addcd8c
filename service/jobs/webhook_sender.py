"""Delivers webhooks at least once, in no particular order, with growing pauses, across restarts.

One process at a time sends a message: who claims it has a lease, and sends nothing that would outlast it. A message
arrives twice only if its sender dies, or loses the ledger for longer than the lease, after the receiver has it and
before that is recorded; both have the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import aiohttp
import structlog

from service.core.errors import InvalidOption
from service.core.schemas import WebhookReply
from service.jobs import webhook_signing, webhook_table
from service.jobs.jobs_table import Job
from service.jobs.webhook_client import AddressRefused, AnswerEndless, CheckedResolver, FinalAnswer
from service.jobs.webhook_signing import Secrets
from service.jobs.webhook_table import Delivery
from service.jobs.webhook_targets import Destinations, Resolve
from service.ledger.contract import Transaction
from service.ledger.database import Database

_log = structlog.get_logger(__name__)
RETRY_AFTER_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0)
"""Pauses between attempts, as Standard Webhooks proposes, about 31 hours in all; no attempts after the last."""
_GONE = 410
_AT_ONCE = 16
_TIMEOUT_S = 15.0
_READ_S = 1.0
"""Time to read an answer that arrived while this process stood still, such as a host that was paused."""
_LEASE_S = 60.0
"""Lease of a message, longer than an attempt: after it the leasing process is dead, and another may take over."""
_ID_PREFIX = "msg_"
Outcome = Literal["delivered", "failed", "given_up"]
_STATES: dict[Outcome, Literal["delivered", "pending", "failed"]] = {
    "delivered": "delivered",
    "failed": "pending",
    "given_up": "failed",
}


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of one attempt to deliver.

    status: of the response; 0 without one.
    reason: why it does not count as delivered; None if it does.
    refused: whether the target is forbidden.
    """

    status: int
    reason: str | None = None
    refused: bool = False


class DeliveryObserver(Protocol):
    """Observer of every attempt, called on the event loop."""

    def webhook_attempted(self, outcome: Outcome) -> None:
        """Count an attempt that ended."""


@dataclass(frozen=True, slots=True)
class Deliverer:
    """Sends the messages that are due. Used on the event loop."""

    ledger: Database
    secrets: Secrets
    destinations: Destinations
    observer: DeliveryObserver
    now: Callable[[], float]
    resolve: Resolve
    retry_after_s: Sequence[float] = RETRY_AFTER_S
    timeout_s: float = _TIMEOUT_S

    def enqueue_job_ended(self, ledger: Transaction, job: Job) -> None:
        """Insert the message that a job has ended, if its request wants it, in the transaction that ends the job."""
        url = job.facts.get("webhook")
        if url is not None and job.status in job.facts["webhook_events"]:
            message = Delivery(f"{_ID_PREFIX}{job.id}", url, webhook_signing.event_payload(job), self.now())
            webhook_table.add(ledger, message)

    async def deliver_due(self) -> int:
        """Attempt all due messages once; returns their number."""
        if not await self.ledger.read(partial(webhook_table.is_due, now=self.now())):
            return 0
        take = partial(webhook_table.claim_due, now=self.now(), again_at=self.now() + _LEASE_S, most=_AT_ONCE)
        due = await self.ledger.write(take)
        connector = aiohttp.TCPConnector(resolver=CheckedResolver(self.destinations, self.resolve), force_close=True)
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            response_class=FinalAnswer,
        ) as session:
            await asyncio.gather(*(self._attempt_delivery(session, one) for one in due))
        return len(due)

    async def _attempt_delivery(self, session: aiohttp.ClientSession, message: Delivery) -> None:
        if self.now() + self.timeout_s + _READ_S > message.next_at:
            return  # this process stood still since its claim, and another one sends it
        answer = await self._answer_in_time(self._post_message(session, message))
        outcome = self._delivery_outcome(answer, message)
        # until it is done: a message that was delivered and is not recorded would be sent again
        await self.ledger.write_until_done(
            partial(self._record_attempt, message=message, outcome=outcome, reason=answer.reason)
        )
        level = _log.debug if outcome == "delivered" else _log.warning
        host = urlsplit(message.url).hostname  # the rest of the URL may contain secrets
        facts = {"outcome": outcome, "tries": message.tries, "status": answer.status, "reason": answer.reason}
        level("webhook", id=message.id, host=host, **facts)
        self.observer.webhook_attempted(outcome)

    def _delivery_outcome(self, answer: AttemptResult, message: Delivery) -> Outcome:
        if 200 <= answer.status < 300:
            return "delivered"
        if answer.refused or answer.status == _GONE or message.tries > len(self.retry_after_s):
            return "given_up"
        return "failed"

    def _record_attempt(self, ledger: Transaction, message: Delivery, outcome: Outcome, reason: str | None) -> None:
        """Record the result of an attempt, for the next one and for clients that poll the job."""
        if outcome == "failed":
            next_at = self.now() + self.retry_after_s[message.tries - 1]
            if not webhook_table.postpone(ledger, message, next_at):
                return
        else:
            webhook_table.remove(ledger, message.id)
        told = WebhookReply(state=_STATES[outcome], tries=message.tries, reason=reason)
        webhook_table.set_state(ledger, message.id.removeprefix(_ID_PREFIX), told)

    async def _answer_in_time(self, posting: Coroutine[Any, Any, AttemptResult]) -> AttemptResult:
        """Wait for an attempt. An answer that is there when the time is over counts: the message was delivered."""
        attempt = asyncio.create_task(posting)
        try:
            for longest_s in (self.timeout_s, _READ_S):
                await asyncio.wait([attempt], timeout=longest_s)
            return attempt.result() if attempt.done() else _attempt_without_response(asyncio.TimeoutError())
        finally:
            attempt.cancel()

    async def _post_message(self, session: aiohttp.ClientSession, message: Delivery) -> AttemptResult:
        try:
            self.destinations.check(message.url)
            headers = webhook_signing.signature_headers(self.secrets, message.id, int(self.now()), message.body)
            async with session.post(
                message.url, data=message.body.encode(), headers=headers, allow_redirects=False
            ) as response:
                return AttemptResult(response.status, _why_not_delivered(response.status))
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, InvalidOption, ValueError) as error:
            return _attempt_without_response(error)


def _why_not_delivered(status: int) -> str | None:
    """Return why a response does not count as delivered; None if it does."""
    if 200 <= status < 300:
        return None
    return f"answered {status}, and redirects are not followed" if 300 <= status < 400 else f"answered {status}"


def _attempt_without_response(error: Exception) -> AttemptResult:
    """Explain why there was no response, in words that reveal nothing about the server's network."""
    if isinstance(error, InvalidOption) or isinstance(error.__cause__, AddressRefused):
        return AttemptResult(0, "goes where this server sends no webhooks", refused=True)
    reasons: dict[type[Exception], str] = {  # the first match
        aiohttp.ClientConnectorDNSError: "its name cannot be resolved",
        aiohttp.ClientSSLError: "its certificate or its TLS is not accepted",
        asyncio.TimeoutError: "no answer in time",
        AnswerEndless: "its answer does not end",
        aiohttp.ClientConnectorError: "it cannot be connected to",
    }
    return AttemptResult(
        0, next((said for kind, said in reasons.items() if isinstance(error, kind)), "the connection broke")
    )
