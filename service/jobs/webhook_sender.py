"""Delivers webhooks at least once, in no particular order, with growing pauses, across restarts.

One process at a time sends a message: who claims it has a lease, and sends nothing that would outlast it. A message
arrives twice only if its sender dies, or loses the ledger for longer than the lease, after the receiver has it and
before that is recorded; both have the same id.

A process makes few attempts at a time, and the next one to the host with the fewest under way, of these to the one that
was tried longest ago. A host gets more than one place only after it answered, and leaves some to the others; those that
did not answer their last attempt share a few. So a receiver that hangs delays its own messages. Some places are for
first attempts to hosts that answered only, so that any number of unknown ones that hang delays no known one. Attempts
to unknown ones that take long leave their places and go on without, so that they delay each other by moments.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Protocol
from urllib.parse import urlsplit

import aiohttp
import structlog

from service.core.errors import InvalidOption, NotReady
from service.core.schemas import WebhookReply
from service.jobs import webhook_signing, webhook_table
from service.jobs.jobs_table import Job
from service.jobs.webhook_client import (
    STATES,
    AttemptResult,
    CheckedResolver,
    Outcome,
    attempt_without_response,
    open_client,
    why_not_delivered,
)
from service.jobs.webhook_signing import Secrets
from service.jobs.webhook_table import Delivery
from service.jobs.webhook_targets import Destinations, Resolve
from service.ledger.contract import Transaction
from service.ledger.database import Database

_log = structlog.get_logger(__name__)
RETRY_AFTER_S = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0)
"""Pauses between attempts, as Standard Webhooks proposes, about 31 hours in all; no attempts after the last."""
_AT_ONCE = 16
_KEPT_FREE = 4
"""Places for the first attempts to hosts that answered, but one for those to unknown hosts and one to silent ones.

Hosts that hang at the same moment, however many, leave them to others; hosts that answer, however busy, leave two.
"""
_AT_ONCE_TO_SILENT = 4
"""Places for all hosts together that did not answer their last attempt; each has one at most."""
_PLACE_S = 1.0
"""Time after which a first attempt to an unknown host leaves its place and goes on waiting for its answer."""
_MOST_WAITING = 192
"""Limit of those: more than begin in the time of an attempt, and few beside the connections of clients."""
_MOST_HOSTS = 4096
"""Limit of the hosts that are remembered."""
_MOST_CONSIDERED = 1024
"""Limit of due messages that are read to fill the places."""
_LOOK_EVERY_S = 0.5
_TIMEOUT_S = 15.0
_READ_S = 1.0
"""Time to read an answer that arrived while this process stood still, such as a host that was paused."""
_LEASE_S = 60.0
"""Lease of a message, longer than an attempt: after it the leasing process is dead, and another may take over."""
_ID_PREFIX = "msg_"


class _Answers:
    """Whether each host answered its last attempt. Hosts that were tried longest ago are forgotten."""

    def __init__(self) -> None:
        self._last: dict[str | None, tuple[int, bool]] = {}
        self._ended = 0

    def record(self, host: str | None, *, answered: bool) -> None:
        """Record the end of an attempt."""
        self._ended += 1
        self._last.pop(host, None)
        self._last[host] = (self._ended, answered)
        if len(self._last) > _MOST_HOSTS:
            del self._last[next(iter(self._last))]

    def last(self, host: str | None) -> tuple[int, bool | None]:
        """The number of the host's last attempt, counted over all, and whether it answered; 0 and None if not known."""
        return self._last.get(host, (0, None))


class _Attempts:
    """Attempts under way. A context manager that cancels them at its end, and waits for theirs."""

    def __init__(self, answers: _Answers, looking_up: Container[str | None]) -> None:
        self.under_way: dict[asyncio.Task[None], tuple[str | None, float]] = {}
        """Their tasks, with the host that each goes to and the time at which it began, on the loop's clock."""
        self._waiting: set[asyncio.Task[None]] = set()
        """Those that have left their places."""
        self.due: dict[str, str | None] = {}
        """Ids of messages that were due at the last look and not chosen since, with their hosts."""
        self.look_again_at = 0.0
        self._answers, self._looking_up = answers, looking_up

    async def __aenter__(self) -> _Attempts:
        return self

    async def __aexit__(self, *_: object) -> None:
        for attempt in self.under_way:
            attempt.cancel()
        await asyncio.gather(*self.under_way, return_exceptions=True)

    def choose(self) -> list[str]:
        """Take ids of the messages to begin now from those due, in the order of the module's docstring."""
        self._leave_places()
        places, ranked = Counter(host for host, _ in self.under_way.values()), []
        holding = [host for attempt, (host, _) in self.under_way.items() if attempt not in self._waiting]
        alike = Counter(self._answers.last(host)[1] for host in holding)
        for message_id, host in self.due.items():
            ranked.append((places[host], *self._answers.last(host), message_id))
            places[host] += 1
        ranked.sort(key=itemgetter(0, 1))
        chosen: list[str] = []
        for others, _, answered, message_id in ranked:
            free = _AT_ONCE - len(holding) - len(chosen)
            if free and _may_begin(answered, others, alike[answered], free):
                alike[answered] += 1
                chosen.append(message_id)
                del self.due[message_id]
        return chosen

    def begin(self, url: str, attempt: Coroutine[Any, Any, None]) -> None:
        """Run an attempt beside the others."""
        self.under_way[asyncio.create_task(attempt)] = _host(url), asyncio.get_running_loop().time()

    def _leave_places(self) -> None:
        """Let first attempts to unknown hosts that take long go on without a place; not in a look-up, of which few run.

        So many that hang delay others by moments.
        """
        before = asyncio.get_running_loop().time() - _PLACE_S
        for attempt, (host, began) in self.under_way.items():
            known = self._answers.last(host)[1] is not None
            if began <= before and not known and host not in self._looking_up and len(self._waiting) < _MOST_WAITING:
                self._waiting.add(attempt)

    async def wait_for_place(self, at_most_s: float) -> None:
        """Wait until an attempt ends, at most so long."""
        ended, _ = await asyncio.wait(self.under_way, timeout=at_most_s, return_when=asyncio.FIRST_COMPLETED)
        for attempt in ended:
            host, _ = self.under_way.pop(attempt)
            self._waiting.discard(attempt)
            if error := attempt.exception():  # one at a receiver must not stop the others
                _log.error("an attempt to deliver a webhook failed; it is tried again", host=host, exc_info=error)


def _may_begin(answered: bool | None, others: int, alike: int, free: int) -> bool:
    """Whether an attempt may take one of the free places.

    Args:
        answered: whether its host answered the last one; None if it is not known.
        others: attempts under way to that host.
        alike: attempts under way to all hosts with the same `answered`.
        free: number of free places, at least one.
    """
    if others:
        return answered is True and free > _KEPT_FREE
    if answered or not alike:
        return True
    return free > _KEPT_FREE and (answered is None or alike < _AT_ONCE_TO_SILENT)


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
    answers: _Answers = field(default_factory=_Answers)

    def enqueue_job_ended(self, ledger: Transaction, job: Job) -> None:
        """Insert the message that a job has ended, if its request wants it, in the transaction that ends the job."""
        url = job.facts.get("webhook")
        if url is not None and job.status in job.facts["webhook_events"]:
            message = Delivery(f"{_ID_PREFIX}{job.id}", url, webhook_signing.event_payload(job), self.now())
            webhook_table.add(ledger, message)

    async def deliver_due(self) -> int:
        """Attempt all due messages once, and those that become due meanwhile; returns their number.

        A place that an attempt leaves is taken at once, so one that hangs keeps only its own.
        """
        tried = 0
        resolver = CheckedResolver(self.destinations, self.resolve)
        async with open_client(resolver) as session, _Attempts(self.answers, resolver.looking_up) as attempts:
            while True:
                claimed = await self._claim_for_free_places(attempts)
                tried += len(claimed)
                for message in claimed:
                    attempts.begin(message.url, self._attempt_delivery(session, message))
                if not attempts.under_way:
                    return tried
                await attempts.wait_for_place(_LOOK_EVERY_S)

    async def _claim_for_free_places(self, attempts: _Attempts) -> list[Delivery]:
        try:
            now = self.now()
            ids = await self._choose(attempts, now)
            if not ids:
                return []
            return await self.ledger.write(partial(webhook_table.claim, ids=ids, now=now, again_at=now + _LEASE_S))
        except NotReady as error:
            if not attempts.under_way:
                raise
            _log.warning("no more webhooks can be claimed; it is tried again", error=str(error))
            return []

    async def _choose(self, attempts: _Attempts, now: float) -> list[str]:
        """Choose messages to begin, of those found a moment ago if there are any: a look reads many of them."""
        time = asyncio.get_running_loop().time()
        if time < attempts.look_again_at and (ids := attempts.choose()):
            return ids
        attempts.look_again_at = time + _LOOK_EVERY_S
        find_due = partial(webhook_table.due_in_turn, now=now, most_each=_AT_ONCE, most=_MOST_CONSIDERED)
        attempts.due = {message_id: _host(url) for message_id, url in await self.ledger.read(find_due)}
        return attempts.choose()

    async def _attempt_delivery(self, session: aiohttp.ClientSession, message: Delivery) -> None:
        if self.now() + self.timeout_s + _READ_S > message.next_at:
            return  # this process stood still since its claim, and another one sends it
        answer = await self._answer_in_time(self._post_message(session, message))
        self.answers.record(_host(message.url), answered=bool(answer.status))
        outcome = answer.outcome(is_last=message.tries > len(self.retry_after_s))
        # until it is done: a message that was delivered and is not recorded would be sent again
        await self.ledger.write_until_done(
            partial(self._record_attempt, message=message, outcome=outcome, reason=answer.reason)
        )
        level = _log.debug if outcome == "delivered" else _log.warning
        facts = {"outcome": outcome, "tries": message.tries, "status": answer.status, "reason": answer.reason}
        level("webhook", id=message.id, host=_host(message.url), **facts)
        self.observer.webhook_attempted(outcome)

    def _record_attempt(self, ledger: Transaction, message: Delivery, outcome: Outcome, reason: str | None) -> None:
        """Record the result of an attempt, for the next one and for clients that poll the job."""
        if outcome == "failed":
            next_at = self.now() + self.retry_after_s[message.tries - 1]
            if not webhook_table.postpone(ledger, message, next_at):
                return
        else:
            webhook_table.remove(ledger, message.id)
        told = WebhookReply(state=STATES[outcome], tries=message.tries, reason=reason)
        webhook_table.set_state(ledger, message.id.removeprefix(_ID_PREFIX), told)

    async def _answer_in_time(self, posting: Coroutine[Any, Any, AttemptResult]) -> AttemptResult:
        """Wait for an attempt. An answer that is there when the time is over counts: the message was delivered."""
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
                message.url, data=message.body.encode(), headers=headers, allow_redirects=False
            ) as response:
                return AttemptResult(response.status, why_not_delivered(response.status))
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, InvalidOption, ValueError) as error:
            return attempt_without_response(error)


def _host(url: str) -> str | None:
    """Return the host of a URL, whose rest may contain secrets; None if it is none, which its attempt tells."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
