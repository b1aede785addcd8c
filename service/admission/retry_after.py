"""When refused clients are to come back, so that they find room then. Pure: time comes in.

Every refusal books the next free moment of the service and tells it as `Retry-After`. Who comes back with the same
`X-Request-ID` when due is let in before newcomers. Nobody has to come: what is kept for them is limited, and shrinks
with the share of them that really comes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from service.admission.retry_book import Book, OwnBook

_FILL = 0.85
"""Share of the service that is promised to those who come back; the rest covers what the measured pace misses."""
_EARLY_S = 0.5
"""Clocks and timers differ: who comes so much too soon has come in time."""
_VALID_S = 15
"""Who has not come so long after the moment is not expected any more."""
_LONGEST_S = 300
_LANES = 5
"""`Retry-After` is in whole seconds, so all who are refused in one fifth of a second return in one, too: each has its
own part of the service, or they would come in waves. With more lanes than that, those whom a late event loop refuses in
one burst would share a sliver of the service and be told to wait for minutes."""
_SMOOTHING = 0.01


@dataclass(slots=True)
class Appointments:
    """Makes and keeps them. Used on the event loop only."""

    shown: float = 1.0
    """Smoothed share of the booked who come."""
    written: Book = field(default_factory=OwnBook)
    """Of this server: its front ends have one together."""
    _free_at: list[float] = field(default_factory=lambda: [0.0] * _LANES)
    """When each lane's next moment is that nobody has booked."""
    _swept_to: int = 0

    def book(self, who: Hashable, wait_s: float, request_s: float, now: float) -> int:
        """Whole seconds until there is room for one more.

        Args:
            who: will be known by this.
            wait_s: until there could be room, booked or not.
            request_s: what each request costs the service.
            now: the time.
        """
        self._sweep(now)
        if (due := self.written.due(who)) is not None and due > now:
            return max(1, math.ceil(due - now))
        lane = int(now % 1.0 * _LANES)
        free_at = max(self._free_at[lane], now + wait_s)
        self._free_at[lane] = min(free_at + request_s * max(self.shown, 0.05) * _LANES / _FILL, now + _LONGEST_S)
        pause_s = max(1, math.ceil(free_at - now))
        if due is not None:
            self.written.take(who)
        self.written.add(who, math.floor(now + pause_s))
        return pause_s

    def redeem(self, who: Hashable, now: float) -> bool:
        """Whether that one has an appointment now; it is used up."""
        self._sweep(now)
        due = self.written.due(who)
        if due is None or not self._swept_to <= due <= now + _EARLY_S:
            return False
        self.written.take(who)
        self.shown += _SMOOTHING * (1.0 - self.shown)
        return True

    def expected(self, now: float) -> float:
        """How many will come within this second and the next."""
        second = math.floor(now)
        return self.shown * (self.written.expected(second) + self.written.expected(second + 1))

    def _sweep(self, now: float) -> None:
        """Forget who has not come."""
        limit = math.floor(now) - _VALID_S
        if limit > self._swept_to:
            self._swept_to = limit
            self.shown *= (1.0 - _SMOOTHING) ** self.written.forget(limit)
