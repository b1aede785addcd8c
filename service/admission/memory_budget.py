"""Memory budget for decoded pictures: requests wait until their share is free.

large_and_small_shares.py decides the order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from service.admission.large_and_small_shares import Claim, LateClaim, MemoryShares, QueuedClaim
from service.admission.late_answer import late_answer_error

OnWaited = Callable[[float, bool], None]
"""Called with the seconds that a claim waited, and whether it was granted."""


class MemoryBudget:
    """Grants shares of the memory as `MemoryShares` decides. Used on the event loop only.

    Args:
        total: bytes that may be granted at once.
        clock: returns seconds; deadlines are on this clock.
    """

    def __init__(self, total: int, clock: Callable[[], float]) -> None:
        self._shares = MemoryShares(total)
        self._clock = clock
        self._outcomes: dict[QueuedClaim, asyncio.Future[LateClaim | None]] = {}
        """Future of each waiting claim: None once its share is granted, or its refusal as late."""

    @property
    def granted_bytes(self) -> int:
        """Bytes that are granted now."""
        return self._shares.granted_bytes

    @property
    def waiting_requests(self) -> int:
        """Number of requests that wait for their share."""
        return self._shares.waiting_claims

    def share(self, claim: Claim, *, deadline_from_client: bool = False, on_waited: OnWaited | None = None) -> _Share:
        """Wait for a share of the memory, and hold it for the length of an `async with` block.

        Args:
            claim: the memory; a claim of no bytes neither waits nor reports.
            deadline_from_client: whether the client chose the deadline.
            on_waited: called with the length of the wait, also when it ends in an error.

        Raises:
            DeadlineExceeded: the request would miss its deadline, which the client chose (`deadline_from_client`).
            Overloaded: the request would miss the server's deadline.
        """
        return _Share(self, claim, deadline_from_client, on_waited)

    async def acquire(self, claim: Claim, deadline_from_client: bool, on_waited: OnWaited | None) -> QueuedClaim:
        """Wait for a share that the caller must `release`; `share` calls this and describes arguments and errors."""
        begun, queued = self._clock(), None
        try:
            queued = self._shares.grant_at_once(claim, begun) or await self._wait_for_share(claim, deadline_from_client)
        finally:
            if on_waited is not None:
                on_waited(self._clock() - begun, queued is not None)
        return queued

    def release(self, queued: QueuedClaim, *, finished: bool) -> None:
        """End a share; `finished` tells whether its request was computed, so that its duration is learned."""
        self._shares.release(queued, self._clock(), finished=finished)
        if self._outcomes:
            self._settle_claims()

    async def _wait_for_share(self, claim: Claim, deadline_from_client: bool) -> QueuedClaim:
        queued = self._shares.add(claim)
        outcome = self._outcomes[queued] = asyncio.get_running_loop().create_future()
        self._settle_claims()
        try:
            late = outcome.result() if outcome.done() else await outcome
        except asyncio.CancelledError:
            if self._outcomes.pop(queued, None) is not None:
                self._shares.withdraw(queued)
            elif not outcome.cancelled() and outcome.result() is None:  # granted just before the cancellation
                self._shares.release(queued, self._clock(), finished=False)
            self._settle_claims()
            raise
        if late is not None:
            raise late_answer_error(
                "the queue for memory is long",
                late.answer_s,
                late.left_s,
                late.retry_after_s,
                deadline_from_client=deadline_from_client,
            )
        return queued

    def _settle_claims(self) -> None:
        unwanted = True
        while unwanted:
            granted, late = self._shares.update(self._clock())
            unwanted = False
            for queued in granted:
                if not self._set_outcome(queued, None):  # its client left just now
                    self._shares.release(queued, self._clock(), finished=False)
                    unwanted = True
            for missed in late:
                self._set_outcome(missed.queued, missed)

    def _set_outcome(self, queued: QueuedClaim, late: LateClaim | None) -> bool:
        """Set the outcome of a claim; False if its client has left."""
        outcome = self._outcomes.pop(queued)
        if outcome.cancelled():
            return False
        outcome.set_result(late)
        return True


class _Share:
    """A share of the memory, held for the length of an `async with` block."""

    __slots__ = ("_budget", "_claim", "_deadline_from_client", "_on_waited", "_queued")

    def __init__(
        self, budget: MemoryBudget, claim: Claim, deadline_from_client: bool, on_waited: OnWaited | None
    ) -> None:
        self._budget, self._claim, self._deadline_from_client, self._on_waited = (
            budget,
            claim,
            deadline_from_client,
            on_waited,
        )
        self._queued: QueuedClaim | None = None

    async def __aenter__(self) -> None:
        if self._claim.nbytes:
            self._queued = await self._budget.acquire(self._claim, self._deadline_from_client, self._on_waited)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._queued is not None:
            self._budget.release(self._queued, finished=kind is None)
