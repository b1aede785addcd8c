"""Delivers webhooks at least once, in no particular order, with growing pauses, across restarts.

One process at a time sends a message: it claims the message with a lease, and begins no attempt that could outlast the
lease. A message arrives twice only if, after the receiver has it and before the delivery is recorded, its sender dies,
ends while the receiver takes longer than `_END_S`, or loses the ledger for longer than the lease. Both copies have the
same id.

slots.py chooses which messages are next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import aiohttp
import structlog

from service.core.errors import InvalidOption, NotReady
from service.core.schemas import WebhookReply
from service.jobs import webhook_signing, webhook_table
from service.jobs.delivery.client import (
    STATES,
    AttemptResult,
    CheckedResolver,
    Outcome,
    attempt_without_response,
    open_client,
    why_not_delivered,
)
from service.jobs.delivery.slots import MAX_CONCURRENT, MAX_CONSIDERED, SLOT_S, Attempts, OriginHistory, host_of
from service.jobs.jobs_table import Job
from service.jobs.webhook_signing import Secrets
from service.jobs.webhook_table import Delivery, origin_of
from service.jobs.webhook_targets import Destinations, Resolve, with_usual_address
from service.ledger.contract import Transaction
from service.ledger.database import Database

_log = structlog.get_logger(__name__)
RETRY_AFTER_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0)
"""Pauses between attempts, as Standard Webhooks proposes, about 31 hours in all; after the last, one more attempt."""
_POLL_INTERVAL_S = 0.5
_TIMEOUT_S = 15.0
_READ_S = 1.0
"""Time to read an answer that arrived while this process was paused, such as with its whole host."""
_LEASE_S = 60.0
"""Lease of a message, longer than an attempt: when it has ended, another process may claim the message."""
_CLOCK_SLACK_S = 60.0
"""Difference between the clocks of processes that is not taken for a clock that was set back."""
_END_S = 2.0
"""Time that attempts under way have when this process ends; a message without a recorded answer is sent again."""
_ID_PREFIX = "msg_"


class DeliveryObserver(Protocol):
    """Observer of delivery attempts, called on the event loop."""

    def webhook_attempted(self, outcome: Outcome) -> None:
        """Count an attempt that has ended."""


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
    slot_s: float = SLOT_S
    end_s: float = _END_S
    history: OriginHistory = field(default_factory=OriginHistory)

    def enqueue_job_ended(self, ledger: Transaction, job: Job) -> None:
        """In the transaction that ends a job, insert the message about its end if its request asked for one."""
        url = job.facts.get("webhook")
        if url is not None and job.status in job.facts["webhook_events"]:
            message = Delivery(f"{_ID_PREFIX}{job.id}", url, webhook_signing.event_payload(job), self.now())
            webhook_table.add(ledger, message)

    async def make_due_after_clock_change(self) -> None:
        """Make messages due that would wait too long, because the clock was set back; called once in a while.

        Raises:
            NotReady: code `ledger_unavailable`.
        """
        longest_s = [0.0, *(max(pause_s, _LEASE_S) for pause_s in self.retry_after_s), _LEASE_S]
        limits = [one + _CLOCK_SLACK_S for one in longest_s]
        await self.ledger.write(partial(webhook_table.make_due, now=self.now(), longest_s=limits))

    async def deliver_due(self) -> int:
        """Attempt all messages that are due, or become due meanwhile; returns the number of attempts.

        A slot that becomes free is filled at once, so an attempt that hangs blocks only its own slot.
        """
        tried = 0
        resolver = CheckedResolver(self.destinations, self.resolve)
        attempts = Attempts(self.history, resolver.looking_up, self.slot_s, self.end_s)
        async with open_client(resolver) as session, attempts:
            while True:
                claimed = await self._claim_for_free_slots(attempts)
                tried += len(claimed)
                for message in claimed:
                    attempts.begin(origin_of(message.url), self._attempt_delivery(session, message))
                if not attempts.in_flight:
                    return tried
                await attempts.wait_for_slot(min(self.slot_s, _POLL_INTERVAL_S) if attempts.due else _POLL_INTERVAL_S)

    async def _claim_for_free_slots(self, attempts: Attempts) -> list[Delivery]:
        try:
            now = self.now()
            ids = await self._choose(attempts, now)
            if not ids:
                return []
            return await self.ledger.write(partial(webhook_table.claim, ids=ids, now=now, again_at=now + _LEASE_S))
        except NotReady as error:
            if not attempts.in_flight:
                raise
            _log.warning("webhooks cannot be claimed; retrying", error=str(error))
            return []

    async def _choose(self, attempts: Attempts, now: float) -> list[str]:
        """Choose messages to attempt; queries the ledger only if the last result is used up or old."""
        time = asyncio.get_running_loop().time()
        if time >= attempts.next_query_at or not attempts.due:
            attempts.next_query_at = time + _POLL_INTERVAL_S
            known = self.history.known()
            find_due = partial(
                webhook_table.due_in_turn, max_per_origin=MAX_CONCURRENT, limit=MAX_CONSIDERED, always=known
            )
            found = await self.ledger.read(partial(find_due, now=now))
            attempts.due = {message_id: origin_of(url) for message_id, url in found}
        return attempts.choose()

    async def _attempt_delivery(self, session: aiohttp.ClientSession, message: Delivery) -> None:
        if self.now() + self.timeout_s + _READ_S > message.next_at:
            return  # this process was paused since its claim: after the lease another process sends the message
        answer = await self._await_response(self._post_message(session, message))
        self.history.record(origin_of(message.url), answered=bool(answer.status))
        outcome = answer.outcome(is_last=message.tries > len(self.retry_after_s))
        # retried until recorded: a delivered message that is not recorded would be sent again
        await self.ledger.write_until_done(
            partial(self._record_attempt, message=message, outcome=outcome, reason=answer.reason)
        )
        level = _log.debug if outcome == "delivered" else _log.warning
        facts = {"outcome": outcome, "tries": message.tries, "status": answer.status, "reason": answer.reason}
        level("webhook", id=message.id, host=host_of(message.url), **facts)
        self.observer.webhook_attempted(outcome)

    def _record_attempt(self, ledger: Transaction, message: Delivery, outcome: Outcome, reason: str | None) -> None:
        """Record the result of an attempt, for the next one and for clients that poll the job."""
        if outcome == "failed":
            next_at = self.now() + self.retry_after_s[message.tries - 1]
            if not webhook_table.postpone(ledger, message, next_at):
                return
        else:
            webhook_table.remove(ledger, message.id)
        reply = WebhookReply(state=STATES[outcome], tries=message.tries, reason=reason)
        webhook_table.set_state(ledger, message.id.removeprefix(_ID_PREFIX), reply)

    async def _await_response(self, posting: Coroutine[Any, Any, AttemptResult]) -> AttemptResult:
        """Wait for an attempt; after the timeout, briefly once more, as the answer may have arrived during a pause."""
        attempt = asyncio.create_task(posting)
        try:
            for longest_s in (self.timeout_s, _READ_S):
                await asyncio.wait([attempt], timeout=longest_s)
            return attempt.result() if attempt.done() else attempt_without_response(asyncio.TimeoutError())
        finally:
            attempt.cancel()

    async def _post_message(self, session: aiohttp.ClientSession, message: Delivery) -> AttemptResult:
        try:
            self.destinations.check(message.url)
            headers = webhook_signing.signature_headers(self.secrets, message.id, int(self.now()), message.body)
            async with session.post(
                with_usual_address(message.url), data=message.body.encode(), headers=headers, allow_redirects=False
            ) as response:
                return AttemptResult(response.status, why_not_delivered(response.status))
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, InvalidOption, ValueError) as error:
            return attempt_without_response(error)
