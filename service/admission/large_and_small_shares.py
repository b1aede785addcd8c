"""Order and prediction of memory shares for decoded pictures. Pure: time is an argument.

Large and small pictures wait in two queues, each in the fair order of its clients, weighted by bytes. An eighth of the
budget is reserved for small pictures. While only small pictures keep a large one waiting, small ones get no more than
that eighth, so that a stream of them cannot keep a large one out.

Each queue learns how long shares are held. From that it predicts when a waiting claim will be granted, and refuses at
once a claim that would miss its deadline.
"""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field

from service.admission.request_order import FairScheduler, QueuePosition
from service.core.flow import ANYONE, Flow

SMALL_DIVISOR = 8
"""An eighth of the budget: with the default of 2 GiB, any picture below 4 megapixels fits with its mask."""
_DECAY = 0.8
"""Factor on earlier measurements at each new share: about the last five count."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A request's claim to a share of the memory, of `nbytes` bytes."""

    nbytes: int
    flow: Flow = ANYONE
    large: bool = False
    deadline: float = math.inf
    """The request's deadline, on the budget's clock."""
    allowed_s: float = math.inf
    """Seconds that a retry would have until its deadline."""


@dataclass(slots=True, eq=False)
class QueuedClaim:
    """A claim in a queue, and later its share."""

    claim: Claim
    nbytes: int
    """Size of the share in bytes: that of the claim, but at most the budget of its queue."""
    position: QueuePosition
    granted_at: float = 0.0
    """Time when the share was granted."""
    has_waited: bool = False
    """Whether an earlier `update` has left it in the queue."""

    def is_late(self, answer_s: float, now: float) -> bool:
        """Whether an answer in `answer_s` seconds would miss the deadline."""
        return now + answer_s > self.claim.deadline


@dataclass(frozen=True, slots=True)
class LateClaim:
    """A claim that was refused because its request would miss its deadline."""

    queued: QueuedClaim
    answer_s: float
    """Predicted seconds until the answer."""
    left_s: float
    """Seconds until the deadline."""
    retry_after_s: float
    """Seconds after which a retry should meet its deadline, after the clients whose retry times are earlier."""


@dataclass(slots=True)
class _ClaimQueue:
    """The claims and shares of one kind of picture, large or small."""

    scheduler: FairScheduler = field(default_factory=FairScheduler)
    waiting: list[QueuedClaim] = field(default_factory=list)
    """Claims in the order of service."""
    granted_bytes: int = 0
    """Bytes that are granted."""
    shares: int = 0
    """Number of shares that are granted."""
    since: float = 0.0
    """Time when a share was last released, or the first one granted."""
    _bytes: float = 0.0
    _seconds: float = 0.0
    _byte_seconds: float = 0.0
    """Decaying sums over released shares: bytes, seconds, and bytes times seconds."""

    @property
    def mean_hold_s_per_byte(self) -> float:
        """Average seconds that a byte is held; 0 until a share has been released."""
        return self._byte_seconds / self._bytes if self._bytes else 0.0

    def min_hold_s(self, nbytes: int) -> float:
        """A low estimate of the seconds that a share of this size is held."""
        return min(self.mean_hold_s_per_byte, nbytes * self._seconds / self._bytes) if self._bytes else 0.0

    def grant(self, queued: QueuedClaim, now: float) -> None:
        if not self.shares:
            self.since = now
        self.scheduler.start(queued.position)
        self.granted_bytes += queued.nbytes
        self.shares += 1
        queued.granted_at = now

    def release(self, queued: QueuedClaim, now: float, *, learn: bool) -> None:
        self.granted_bytes -= queued.nbytes
        self.shares -= 1
        self.since = now
        if learn:
            held_s = now - queued.granted_at
            self._bytes = _DECAY * self._bytes + queued.nbytes
            self._seconds = _DECAY * self._seconds + held_s
            self._byte_seconds = _DECAY * self._byte_seconds + held_s * queued.nbytes

    def remove(self, queued: QueuedClaim) -> None:
        self.waiting.remove(queued)
        self.scheduler.refund(queued.claim.flow, queued.nbytes)

    def is_only_claim(self, queued: QueuedClaim) -> bool:
        """Whether the queue has no share and no other claim, and this claim has not waited.

        Such a claim is granted even if it is predicted to be late, so that wrong predictions are corrected.
        """
        return not self.shares and len(self.waiting) == 1 and not queued.has_waited

    def predicted_answer_s(self, queued: QueuedClaim, ahead: int, now: float) -> float:
        """Predicted seconds until the answer, with `ahead` bytes before it in the queue; 0 while nothing is known."""
        min_hold_s = self.min_hold_s(queued.nbytes)
        if not self.granted_bytes:
            return ahead / queued.nbytes * self.mean_hold_s_per_byte + min_hold_s
        done_s = min(now - self.since, self.mean_hold_s_per_byte)
        return max(0.0, (ahead + queued.nbytes) / self.granted_bytes * self.mean_hold_s_per_byte - done_s) + min_hold_s

    def remove_late(self, now: float, late_claims: list[tuple[QueuedClaim, float]]) -> None:
        """Move the claims that would be answered too late to `late_claims`, each with the predicted seconds."""
        ahead = 0
        for queued in tuple(self.waiting):
            answer_s = self.predicted_answer_s(queued, ahead, now)
            if queued.is_late(answer_s, now):
                late_claims.append((queued, answer_s))
                self.remove(queued)
            else:
                ahead += queued.nbytes
                queued.has_waited = True

    def refusals_of(self, late_claims: list[tuple[QueuedClaim, float]], now: float) -> list[LateClaim]:
        """Refusals of these claims, whose retry times follow one another, after the claims that wait now."""
        ahead, late = sum(queued.nbytes for queued in self.waiting), []
        for queued, answer_s in late_claims:
            retry_after_s = max(0.0, self.predicted_answer_s(queued, ahead, now) - queued.claim.allowed_s)
            late.append(LateClaim(queued, answer_s, queued.claim.deadline - now, retry_after_s))
            ahead += queued.nbytes
        return late


class MemoryShares:
    """All claims and shares of the budget.

    Args:
        total: bytes that may be granted at once; one oversized share may exceed them (`_fits`).
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._reserved = total // SMALL_DIVISOR
        self._small, self._large = _ClaimQueue(), _ClaimQueue()

    @property
    def granted_bytes(self) -> int:
        """Bytes that are granted."""
        return self._small.granted_bytes + self._large.granted_bytes

    @property
    def waiting_claims(self) -> int:
        """Number of claims that wait."""
        return len(self._small.waiting) + len(self._large.waiting)

    def grant_at_once(self, claim: Claim, now: float) -> QueuedClaim | None:
        """Grant a claim that need not wait; None if another waits, if it does not fit, or if it would be late.

        It does what `add` and `update` would do, in a fifth of the time; nearly every claim is granted this way.
        """
        queue, nbytes = self._queue_of(claim), self._share_nbytes(claim)
        if self._small.waiting or self._large.waiting or not self._fits(queue, nbytes):
            return None
        if now + queue.min_hold_s(nbytes) > claim.deadline:
            return None
        queued = QueuedClaim(claim, nbytes, queue.scheduler.assign(claim.flow, nbytes))
        queue.grant(queued, now)
        return queued

    def add(self, claim: Claim) -> QueuedClaim:
        """Add a claim to its queue."""
        queue, nbytes = self._queue_of(claim), self._share_nbytes(claim)
        queued = QueuedClaim(claim, nbytes, queue.scheduler.assign(claim.flow, nbytes))
        insort(queue.waiting, queued, key=lambda other: other.position)
        return queued

    def withdraw(self, queued: QueuedClaim) -> None:
        """Remove a waiting claim whose client has left."""
        self._queue_of(queued.claim).remove(queued)

    def release(self, queued: QueuedClaim, now: float, *, finished: bool = True) -> None:
        """Release a share; its duration is learned if the request was finished."""
        self._queue_of(queued.claim).release(queued, now, learn=finished)

    def update(self, now: float) -> tuple[list[QueuedClaim], list[LateClaim]]:
        """Take from the queues the claims that are granted now, and those that are refused as late."""
        granted: list[QueuedClaim] = []
        late: list[LateClaim] = []
        for queue in (self._large, self._small):
            late_claims: list[tuple[QueuedClaim, float]] = []
            granted += self._grant(queue, now, late_claims)
            queue.remove_late(now, late_claims)
            granted += self._grant(queue, now, late_claims)  # a late claim may have blocked the queue
            late += queue.refusals_of(late_claims, now)
        return granted, late

    def _grant(self, queue: _ClaimQueue, now: float, late_claims: list[tuple[QueuedClaim, float]]) -> list[QueuedClaim]:
        """Grant the claims at the front that fit; those that would be late go to `late_claims`."""
        granted = []
        while queue.waiting and self._fits(queue, queue.waiting[0].nbytes):
            first = queue.waiting[0]
            answer_s = queue.min_hold_s(first.nbytes)
            if first.is_late(answer_s, now) and not queue.is_only_claim(first):
                late_claims.append((first, answer_s))
                queue.remove(first)
                continue
            queue.waiting.pop(0)
            queue.grant(first, now)
            granted.append(first)
        return granted

    def _fits(self, queue: _ClaimQueue, nbytes: int) -> bool:
        """Whether the first claim of a queue may be granted.

        Each queue may always have one share, so that an oversized picture is granted while small ones hold theirs.
        """
        if queue is self._large:
            other_bytes = max(self._small.granted_bytes, self._reserved)
            return self._large.granted_bytes + other_bytes + nbytes <= self._total or (
                not self._large.shares and self._small.granted_bytes <= self._reserved
            )
        if not self._small.shares or self._small.granted_bytes + nbytes <= self._reserved:
            return True
        return not self._small_shares_block_large() and self.granted_bytes + nbytes <= self._total

    def _small_shares_block_large(self) -> bool:
        """Whether the first large claim would be granted if small ones held only the part reserved for them."""
        large = self._large
        if not large.waiting:
            return False
        return not large.shares or large.granted_bytes + self._reserved + large.waiting[0].nbytes <= self._total

    def _share_nbytes(self, claim: Claim) -> int:
        return min(claim.nbytes, self._total - self._reserved if claim.large else self._total)

    def _queue_of(self, claim: Claim) -> _ClaimQueue:
        return self._large if claim.large else self._small
