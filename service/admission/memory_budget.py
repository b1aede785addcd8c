"""A budget that requests share: how much decoded picture may be in memory at once, and who waits for it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from service.admission.memory_shares import Claim, Late, Shares, Ticket
from service.core.errors import DeadlineExceeded, Overloaded, ServiceError


class Budget:
    """Hands out shares as `Shares` decides. Used on the event loop only.

    Args:
        total: bytes.
        clock: of deadlines.
    """

    def __init__(self, total: int, clock: Callable[[], float]) -> None:
        self._shares = Shares(total)
        self._clock = clock
        self._turns: dict[Ticket, asyncio.Future[Late | None]] = {}
        """Of those that wait: done with None when they have their share."""

    @property
    def taken(self) -> int:
        """Bytes that are handed out now."""
        return self._shares.taken

    @property
    def waiting(self) -> int:
        """Requests that wait for their share."""
        return self._shares.waiting

    @asynccontextmanager
    async def share(self, claim: Claim, *, own_deadline: bool = False) -> AsyncIterator[None]:
        """Hold a share, after waiting for it.

        Raises:
            DeadlineExceeded: the deadline, which is the client's own, would pass before the answer.
            Overloaded: as before, and the deadline is the server's.
        """
        if not claim.nbytes:
            yield
            return
        ticket = await self._turn(claim, own_deadline)
        finished = False
        try:
            yield
            finished = True
        finally:
            self._shares.give_back(ticket, self._clock(), finished=finished)
            self._settle()

    async def _turn(self, claim: Claim, own_deadline: bool) -> Ticket:
        ticket = self._shares.ask(claim)
        turn = self._turns[ticket] = asyncio.get_running_loop().create_future()
        self._settle()
        try:
            late = turn.result() if turn.done() else await turn
        except asyncio.CancelledError:
            if self._turns.pop(ticket, None) is not None:
                self._shares.withdraw(ticket)
            elif not turn.cancelled() and turn.result() is None:  # it came in the same moment
                self._shares.give_back(ticket, self._clock(), finished=False)
            self._settle()
            raise
        if late is not None:
            raise _refusal(late, own_deadline)
        return ticket

    def _settle(self) -> None:
        unwanted = True
        while unwanted:
            begun, late = self._shares.settle(self._clock())
            unwanted = False
            for ticket in begun:
                if not self._tell(ticket, None):  # its caller left in this moment
                    self._shares.give_back(ticket, self._clock(), finished=False)
                    unwanted = True
            for missed in late:
                self._tell(missed.ticket, missed)

    def _tell(self, ticket: Ticket, late: Late | None) -> bool:
        """Whether somebody still waits for it."""
        turn = self._turns.pop(ticket)
        if turn.cancelled():
            return False
        turn.set_result(late)
        return True


def _refusal(late: Late, own_deadline: bool) -> ServiceError:
    """Whoever comes back when told to has the time that is needed then."""
    pause_s = max(1, math.ceil(late.pause_s))
    message = (
        f"pictures wait for memory: the answer would take {late.answer_s:.1f} s and {max(0.0, late.left_s):.1f} s are "
        f"left; come back in {pause_s} s"
    )
    if own_deadline:
        return DeadlineExceeded(f"{message}, or allow more", retry_after_s=pause_s)
    return Overloaded(message, retry_after_s=pause_s)
