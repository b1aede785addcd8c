"""Reservations for refused clients: the `Retry-After` at which each can be served. Pure: time is an argument.

Every refusal reserves the next free moment of the service and returns it as `Retry-After`. A client that retries then
with the same `X-Request-ID` is admitted before new ones. Some never return, so the capacity reserved is limited and
follows the measured share of clients that do.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from service.admission.reservation_store import LocalReservationStore, ReservationStore

_PROMISED_SHARE = 0.85
"""Share of the service rate that is promised to returning clients; the rest covers errors of the measured rate."""
_EARLY_S = 0.5
"""A retry may come this much too early, because clocks and timers differ."""
_VALID_S = 15
"""Seconds after which a reservation that was not used expires."""
_MAX_WAIT_S = 300
_PHASES = 5
"""Number of phases that each second is divided into. `Retry-After` is in whole seconds, so clients that are refused in
one phase also return in that phase; each phase reserves its own part of the service, or they would return in waves.
With more phases, a burst refused in one phase would get too small a share of the service and wait for minutes."""
_SMOOTHING = 0.01


@dataclass(slots=True)
class Reservations:
    """Makes and redeems reservations. Used on the event loop only."""

    return_rate: float = 1.0
    """Smoothed share of the reservations that are redeemed."""
    store: ReservationStore = field(default_factory=LocalReservationStore)
    """The open reservations; all front ends of a server share them."""
    _free_at: list[float] = field(default_factory=lambda: [0.0] * _PHASES)
    """Time of the next unreserved moment in each phase, in seconds on the clock of `now`."""
    _expired_before: int = 0

    def reserve(self, key: Hashable, wait_s: float, request_s: float, now: float) -> int:
        """Reserve the next free moment, unless the key has a reservation; return whole seconds until it, at least 1.

        Args:
            key: key of the reservation, which the retry presents.
            wait_s: seconds until the queue could admit one more request, not counting reservations.
            request_s: seconds that the service takes for each request.
            now: the time in seconds.
        """
        self._expire(now)
        if (due := self.store.due_second(key)) is not None and due > now:
            return max(1, math.ceil(due - now))
        phase = int(now % 1.0 * _PHASES)
        free_at = max(self._free_at[phase], now + wait_s)
        self._free_at[phase] = min(
            free_at + request_s * max(self.return_rate, 0.05) * _PHASES / _PROMISED_SHARE, now + _MAX_WAIT_S
        )
        retry_after_s = max(1, math.ceil(free_at - now))
        if due is not None:
            self.store.remove(key)
        self.store.add(key, math.floor(now + retry_after_s))
        return retry_after_s

    def redeem(self, key: Hashable, now: float) -> bool:
        """Use up the key's reservation if it is due now; return whether it was."""
        self._expire(now)
        due = self.store.due_second(key)
        if due is None or not self._expired_before <= due <= now + _EARLY_S:
            return False
        self.store.remove(key)
        self.return_rate += _SMOOTHING * (1.0 - self.return_rate)
        return True

    def expected_returns(self, now: float) -> float:
        """The number of clients that are expected to return in this second and the next."""
        second = math.floor(now)
        return self.return_rate * (self.store.expected_in_second(second) + self.store.expected_in_second(second + 1))

    def _expire(self, now: float) -> None:
        """Remove expired reservations, and lower the measured share of clients that return."""
        limit = math.floor(now) - _VALID_S
        if limit > self._expired_before:
            self._expired_before = limit
            self.return_rate *= (1.0 - _SMOOTHING) ** self.store.expire(limit)
