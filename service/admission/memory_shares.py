"""Who may hold decoded pictures in memory, and who waits for how long. Pure: time comes in.

Large pictures and small ones wait in lanes of their own, each in the fair order of its clients, where a share counts by
its bytes. An eighth of the budget is never given to large ones, and the small may always have that much; while a large
one waits for no other large one, it is all that they get, so that no stream of small ones keeps a large one out.

A lane learns how long its shares are held. What is held is given back at the rate of its bytes over that time, which
predicts when a request's turn will come; who would miss its deadline is told so at once, and no work is begun for it.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field

from service.admission.fairness import FairOrder, Turn
from service.core.flow import ANYONE, Flow

KEPT_FOR_SMALL = 8
"""An eighth: any picture below 4 megapixels fits there with its mask, of the 2 GiB that are the default."""
_REMEMBERED = 0.8
"""Weight of all that was learned before against one more share: about the last five count."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request asks for."""

    nbytes: int
    flow: Flow = ANYONE
    large: bool = False
    deadline: float = math.inf
    """When it needs no answer any more."""
    allowed_s: float = math.inf
    """How long it would have if it came again."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A claim, its turn, and since when it has its share."""

    claim: Claim
    nbytes: int
    """Of its share: no more than its lane can have."""
    turn: Turn
    begun_at: float = 0.0
    has_waited: bool = False
    """Whether it was looked at before."""

    def is_late(self, answer_s: float, now: float) -> bool:
        """Whether an answer after so many seconds comes after its deadline."""
        return now + answer_s > self.claim.deadline


@dataclass(frozen=True, slots=True)
class Late:
    """A request that would be answered after its deadline."""

    ticket: Ticket
    answer_s: float
    """From now."""
    left_s: float
    """Until its deadline."""
    pause_s: float
    """If it came again after that, there would be time for it and for those that are told to come before."""


@dataclass(slots=True)
class _Lane:
    """Shares of one kind."""

    order: FairOrder = field(default_factory=FairOrder)
    waiting: list[Ticket] = field(default_factory=list)
    """The next one first."""
    held: int = 0
    holders: int = 0
    since: float = 0.0
    """When a share was last given back, or the first one begun."""
    _bytes: float = 0.0
    _seconds: float = 0.0
    _byte_seconds: float = 0.0
    """Of shares that were given back, with a fading memory."""

    @property
    def hold_s(self) -> float:
        """How long a byte is held on average; 0 until a share was given back."""
        return self._byte_seconds / self._bytes if self._bytes else 0.0

    def own_s(self, nbytes: int) -> float:
        """How long a share of that size is held, at the least that is likely."""
        return min(self.hold_s, nbytes * self._seconds / self._bytes) if self._bytes else 0.0

    def begin(self, ticket: Ticket, now: float) -> None:
        if not self.holders:
            self.since = now
        self.order.begin(ticket.turn)
        self.held += ticket.nbytes
        self.holders += 1
        ticket.begun_at = now

    def end(self, ticket: Ticket, now: float, *, learn: bool) -> None:
        self.held -= ticket.nbytes
        self.holders -= 1
        self.since = now
        if learn:
            held_s = now - ticket.begun_at
            self._bytes = _REMEMBERED * self._bytes + ticket.nbytes
            self._seconds = _REMEMBERED * self._seconds + held_s
            self._byte_seconds = _REMEMBERED * self._byte_seconds + held_s * ticket.nbytes

    def leave(self, ticket: Ticket) -> None:
        self.waiting.remove(ticket)
        self.order.forgive(ticket.claim.flow, ticket.nbytes)

    def is_only(self, ticket: Ticket) -> bool:
        """Whether it comes while nobody is there: it is begun whatever was learned, or nothing new ever is."""
        return not self.holders and len(self.waiting) == 1 and not ticket.has_waited

    def answer_s(self, ticket: Ticket, ahead: int, now: float) -> float:
        """Until its answer, with so many bytes before it in the queue; 0 as long as nothing is known."""
        own_s = self.own_s(ticket.nbytes)
        if not self.held:
            return ahead / ticket.nbytes * self.hold_s + own_s
        done_s = min(now - self.since, self.hold_s)
        return max(0.0, (ahead + ticket.nbytes) / self.held * self.hold_s - done_s) + own_s

    def leave_in_vain(self, now: float, in_vain: list[tuple[Ticket, float]]) -> None:
        """Those that would be answered too late leave, and are added with when that were; the others have waited."""
        ahead = 0
        for ticket in tuple(self.waiting):
            answer_s = self.answer_s(ticket, ahead, now)
            if ticket.is_late(answer_s, now):
                in_vain.append((ticket, answer_s))
                self.leave(ticket)
            else:
                ahead += ticket.nbytes
                ticket.has_waited = True

    def told(self, in_vain: list[tuple[Ticket, float]], now: float) -> list[Late]:
        """When each of those should come again: one after the other, behind who waits now."""
        ahead, late = sum(ticket.nbytes for ticket in self.waiting), []
        for ticket, answer_s in in_vain:
            pause_s = max(0.0, self.answer_s(ticket, ahead, now) - ticket.claim.allowed_s)
            late.append(Late(ticket, answer_s, ticket.claim.deadline - now, pause_s))
            ahead += ticket.nbytes
        return late


class Shares:
    """The budget's books.

    Args:
        total: bytes that may be held, or a little more (`_fits`).
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._kept = total // KEPT_FOR_SMALL
        self._small, self._large = _Lane(), _Lane()

    @property
    def taken(self) -> int:
        """Bytes that are handed out."""
        return self._small.held + self._large.held

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._small.waiting) + len(self._large.waiting)

    def ask(self, claim: Claim) -> Ticket:
        """Queue up."""
        lane = self._lane(claim)
        nbytes = min(claim.nbytes, self._total - self._kept if claim.large else self._total)
        ticket = Ticket(claim, nbytes, lane.order.next(claim.flow, nbytes))
        insort(lane.waiting, ticket, key=lambda other: other.turn)
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """Nobody waits for it any more."""
        self._lane(ticket.claim).leave(ticket)

    def give_back(self, ticket: Ticket, now: float, *, finished: bool = True) -> None:
        """Its pictures are gone; nothing is learned from one that was not finished."""
        self._lane(ticket.claim).end(ticket, now, learn=finished)

    def settle(self, now: float) -> tuple[list[Ticket], list[Late]]:
        """Whose turn has come, and who waits in vain: both have left the queue."""
        begun: list[Ticket] = []
        late: list[Late] = []
        for lane in (self._large, self._small):
            in_vain: list[tuple[Ticket, float]] = []
            begun += self._begin(lane, now, in_vain)
            lane.leave_in_vain(now, in_vain)
            begun += self._begin(lane, now, in_vain)  # the first may have been one of those
            late += lane.told(in_vain, now)
        return begun, late

    def _begin(self, lane: _Lane, now: float, in_vain: list[tuple[Ticket, float]]) -> list[Ticket]:
        """Those at the front that fit, unless they would not be finished in time."""
        begun = []
        while lane.waiting and self._fits(lane, lane.waiting[0].nbytes):
            first = lane.waiting[0]
            answer_s = lane.own_s(first.nbytes)
            if first.is_late(answer_s, now) and not lane.is_only(first):
                in_vain.append((first, answer_s))
                lane.leave(first)
                continue
            lane.waiting.pop(0)
            lane.begin(first, now)
            begun.append(first)
        return begun

    def _fits(self, lane: _Lane, nbytes: int) -> bool:
        """Whether the first of a lane may have its share.

        One of each lane may always be there: one larger than what it may have, and small ones beside it.
        """
        if lane is self._large:
            beside = max(self._small.held, self._kept)
            return self._large.held + beside + nbytes <= self._total or (
                not self._large.holders and self._small.held <= self._kept
            )
        if not self._small.holders or self._small.held + nbytes <= self._kept:
            return True
        return not self._waits_for_small() and self.taken + nbytes <= self._total

    def _waits_for_small(self) -> bool:
        """Whether the first of the large ones would have its share if small ones had no more than is kept for them."""
        large = self._large
        if not large.waiting:
            return False
        return not large.holders or large.held + self._kept + large.waiting[0].nbytes <= self._total

    def _lane(self, claim: Claim) -> _Lane:
        return self._large if claim.large else self._small
