"""`Idempotency-Key`: the same key gives the same answer, computed once (draft-ietf-httpapi-idempotency-key-header).

The first request with a key claims the key; later requests, in any process, wait for its answer and get the same bytes.
A key is released if its request fails, or its answer cannot be stored, because it can then safely be repeated. A key
that comes with a different request is refused. The claim records the ids under which the request will store its
results. If its process dies, or the request fails after it stored results, a repeat takes over the key and is answered
with these results (earlier_results.py); if they are incomplete, it is computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from service.core.errors import Conflict, InvalidOption, NotReady
from service.ledger.contract import Owner, Transaction
from service.ledger.database import Database
from service.repeats import idempotency_table
from service.repeats.attempt import Attempt, ResultsToStore, result_ids, share_results
from service.repeats.earlier_results import Left, refuse_if_deleted
from service.repeats.idempotency_table import Claim
from service.repeats.response_files import ResponseFiles, StoredResponse
from service.saving.local_disk.disk_state import DiskState

REPLAYED = "idempotency-replayed"
_MIN_PAUSE_S = 0.01
_MAX_PAUSE_S = 0.25
_MAX_RELEASE_S = 1.0
"""Longest time that an error waits until its key is released, in seconds; a ledger that is away may take longer."""
T = TypeVar("T")
Work = Callable[[Attempt], Awaitable[StoredResponse]]
_NO_RESULTS = ResultsToStore()


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The idempotency keys of all processes that share a ledger. Used on the event loop."""

    ledger: Database
    responses: ResponseFiles
    disk: DiskState
    owner: Owner
    now: Callable[[], float]
    """The ledger's clock, in seconds since the epoch."""
    ttl_s: float
    wait_s: float
    """Longest time that a request waits for the answer to an earlier one with its key, in seconds."""
    deleted: Callable[[Collection[str]], set[str]] = lambda _: set()
    """Returns the deleted results among those with the given ids. Blocks."""
    left_by: Callable[[Claim, Sequence[str]], Left] = lambda *_: Left()
    """See `EarlierResults.left_by`. Blocks."""
    bury_in: Callable[[Transaction, str, str], None] = lambda *_: None
    """See `ResultIndex.bury_in`."""
    stored_in: Callable[[Transaction, Sequence[str]], bool] = lambda *_: False
    """See `EarlierResults.stored_in`."""
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for a number of seconds, or until a key was answered in another process."""
    _claims: list[Claim] = field(default_factory=list)
    """The claims of this process that are being inserted, answered or released; a list, because claims made at the same
    time may be equal."""
    _background: set[asyncio.Task[Any]] = field(default_factory=set)
    """Tasks that continue after their requests have ended."""

    async def run_once(
        self, name: str, fingerprint: str, work: Work, stores: ResultsToStore = _NO_RESULTS
    ) -> StoredResponse:
        """Return the stored answer to the key, or run `work` and store its answer.

        Args:
            name: name of the key, from `key_name`.
            fingerprint: digest of the request, from `fingerprint_of`.
            work: computes the answer.
            stores: the results that `work` stores.

        Raises:
            InvalidOption: code `idempotency_mismatch`: the key came with another request before.
            Gone: the answer contains a result that its owner has deleted.
            Conflict: code `idempotency_in_progress`: the earlier request is still unanswered after `wait_s`.
            NotReady: the ledger cannot be used, or the disk rejects the answer (`storage_unavailable`).
            ServiceError, CancelledError: raised by `work`; the key is released.
        """
        started, pause_s = self.now(), _MIN_PAUSE_S
        while True:
            claim = await self._find(name)
            if claim is None or await self._is_orphan(claim):
                self.disk.refuse_if_failing()
                mine = Claim(name, fingerprint, self.owner.id, self.now() + self.ttl_s)
                if attempt := await self._begin(mine, claim, stores):
                    return await self._answer_first_request(mine, attempt, work)
                continue
            if claim.fingerprint != fingerprint:
                raise InvalidOption(
                    "this Idempotency-Key was used for a different request; use a new key", code="idempotency_mismatch"
                )
            if claim.done:
                if (response := await asyncio.to_thread(self._stored_response, claim)) is not None:
                    return _replayed(response)
                await self.ledger.write(partial(idempotency_table.release, claimed=claim))  # the file was deleted
                continue
            self.disk.refuse_if_failing()
            if self.now() - started > self.wait_s:
                raise _in_progress("an earlier request with this Idempotency-Key is in progress; try again later")
            await self.pause(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    async def _find(self, name: str) -> Claim | None:
        claim = await self.ledger.read(partial(idempotency_table.find, name=name, now=self.now()))
        if claim is None or not self._is_forgotten(claim):
            return claim
        await self.ledger.write(partial(self._release_claim, claim))
        return None

    def _stored_response(self, claim: Claim) -> StoredResponse | None:
        found = self.responses.find(claim)
        if found is not None:
            refuse_if_deleted(found.deleted or self.deleted(found.result_ids))
        return found

    async def forget_result(self, result_id: str) -> None:
        """Remove every stored answer that contains a deleted result; repeats with its key are answered with `Gone`.

        Raises:
            OSError: an answer cannot be removed now.
            NotReady: code `ledger_unavailable`.
        """
        for claim in await self.ledger.read(partial(idempotency_table.containing, result_id=result_id)):
            await asyncio.to_thread(self.responses.replace_deleted, claim)

    async def delete_expired(self) -> None:
        """Remove expired keys and their answers, and release claims that no request uses (`_is_forgotten`)."""
        for claim in await self.ledger.read(partial(idempotency_table.unanswered_of, owner=self.owner.id)):
            if self._is_forgotten(claim):
                await self.ledger.write(partial(self._release_claim, claim))
        for expired in await self.ledger.write(partial(idempotency_table.delete_expired, now=self.now())):
            if self.responses.by_claim:
                await asyncio.to_thread(self.responses.drop, expired)
            else:
                await self.ledger.write(partial(self._drop_if_free, expired))

    async def close(self) -> None:
        """Stop recording answers and releasing keys; other processes release the rest once this process has ended."""
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_forgotten(self, claim: Claim) -> bool:
        """Return whether the claim is this process's but no request uses it: its commit only seemed to have failed."""
        return not claim.done and claim.owner == self.owner.id and claim not in self._claims

    async def _is_orphan(self, claim: Claim) -> bool:
        return claim.is_left or not (claim.done or await asyncio.to_thread(self.owner.is_alive, claim.owner))

    async def _begin(self, mine: Claim, orphan: Claim | None, stores: ResultsToStore) -> Attempt | None:
        """Claim the key, instead of the claim of a dead process if there is one; None if another process is first."""
        left, now = await self._left_by(orphan, mine), self.now()
        ids = left.result_ids or result_ids(mine, stores.pictures)

        def claim(ledger: Transaction) -> list[Claim] | None:
            removed = idempotency_table.claim(ledger, mine, now, orphan, ids)
            if any(one == orphan and not one.shared for one in removed or ()):
                for result_id in left.incomplete:
                    self.bury_in(ledger, result_id, stores.owner)
            return removed

        if not await self._try_to_claim(mine, claim):
            return None
        return Attempt(ids, partial(share_results, claim=mine, ids=ids), left.reply)

    async def _left_by(self, orphan: Claim | None, mine: Claim) -> Left:
        if orphan is None or orphan.fingerprint != mine.fingerprint:
            return Left()
        ids = await self.ledger.read(partial(idempotency_table.results_of, claimed=orphan))
        return await asyncio.to_thread(self.left_by, orphan, ids) if ids else Left()

    async def _try_to_claim(self, mine: Claim, claim: Callable[[Transaction], list[Claim] | None]) -> bool:
        """Try to claim the key; returns whether it succeeded. A cancelled call leaves the key free."""
        self._claims.append(mine)
        claiming = self.ledger.write(claim)
        try:
            removed = await asyncio.shield(claiming)
        except asyncio.CancelledError:  # the ledger may still write the claim
            self._in_background(self._release_after_failure(claiming, mine))
            raise
        except NotReady:  # the claim may be written: the database can go away after a commit, before its answer
            self._release_in_background(mine)
            raise
        if removed is None:
            self._claims.remove(mine)
        elif removed:
            self._in_background(self._drop_own_files(removed))
        return removed is not None

    async def _release_after_failure(self, claiming: asyncio.Future[list[Claim] | None], mine: Claim) -> None:
        removed: list[Claim] | None = []
        with suppress(NotReady):  # the claim may be written nevertheless
            removed = await claiming
        if removed is None:
            self._claims.remove(mine)
        else:
            await self._drop_own_files(removed)
            await self._release(mine)

    async def _answer_first_request(self, mine: Claim, attempt: Attempt, work: Work) -> StoredResponse:
        try:
            response = await work(attempt)
        except (Exception, asyncio.CancelledError):  # a deadline cancels
            # as soon as it has the error, the client may send a corrected request with this key
            await asyncio.wait({self._release_in_background(mine)}, timeout=_MAX_RELEASE_S)
            raise
        # shielded from the client's disconnection, so that two answers to one key are never stored concurrently
        await asyncio.shield(self._in_background(self._record(mine, attempt, response)))
        return response if attempt.earlier is None else _replayed(response)

    async def _record(self, mine: Claim, attempt: Attempt, response: StoredResponse) -> None:
        """Store the answer; if that fails, the key is released."""
        try:
            if not set(response.result_ids) <= set(attempt.result_ids):  # such as cached ones
                # before the answer is stored, so that a concurrent deletion finds it
                contain = partial(idempotency_table.contain, claimed=mine, result_ids=response.result_ids)
                await self.ledger.write(contain)
            try:
                await asyncio.to_thread(self._keep, mine, response)
            except OSError as error:
                raise self.disk.record_failure(error, len(response.body)) from error
            answered = await self.ledger.write(partial(idempotency_table.mark_answered, claimed=mine))
        except Exception:
            self._release_in_background(mine)
            raise
        if not answered:
            self._release_in_background(mine)
            raise _in_progress("another server has taken over this Idempotency-Key; retry to get its answer")
        self._claims.remove(mine)

    def _keep(self, mine: Claim, response: StoredResponse) -> None:
        self.responses.keep(mine, response)
        if self.deleted(response.result_ids):  # a result was deleted while the answer was written
            self.responses.replace_deleted(mine)

    def _release_in_background(self, mine: Claim) -> asyncio.Task[None]:
        return self._in_background(self._release(mine))

    def _in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: callers that still wait have received it

    async def _release(self, mine: Claim) -> None:
        """Release an unanswered key, or leave it with stored results; a recorded answer stays, as it may be sent."""
        released = await self.ledger.write_until_done(partial(self._release_claim, mine))
        self._claims.remove(mine)
        if released:
            self._in_background(self._drop_own_files([mine]))

    async def _drop_own_files(self, removed: Collection[Claim]) -> None:
        """Remove the stored answers of removed claims, if each claim has its own file (`by_claim`).

        Called after the commit, because a bucket may hang. A claim that was taken over may have an answer, too: its
        process may have stored one before it died.
        """
        for claim in removed if self.responses.by_claim else ():
            with suppress(OSError):  # a stored answer without a key is never sent
                await asyncio.to_thread(self.responses.drop, claim)

    def _release_claim(self, mine: Claim, ledger: Transaction) -> bool:
        results = idempotency_table.results_of(ledger, mine)
        end = idempotency_table.leave if self.stored_in(ledger, results) else idempotency_table.release_unanswered
        released = end(ledger, mine)
        if released and not self.responses.by_claim:
            with suppress(OSError):  # as above
                self._drop_if_free(mine, ledger)
        return released

    def _drop_if_free(self, removed: Claim, ledger: Transaction) -> None:
        """Remove the answer of a removed claim, unless there is a new claim on the key, which has the same file.

        Runs inside the transaction, so that no process claims the key in between.
        """
        if idempotency_table.is_free(ledger, removed.name):
            self.responses.drop(removed)


def _replayed(response: StoredResponse) -> StoredResponse:
    return replace(response, headers=(*response.headers, (REPLAYED, "true")))


def _in_progress(message: str) -> Conflict:
    return Conflict(message, code="idempotency_in_progress", retry_after_s=1)
