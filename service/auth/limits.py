"""Limits of keys: a rate with bursts, and a daily quota. The counts of one key are pure: time is an argument."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from typing import Protocol


@dataclass(slots=True)
class TokenBucket:
    """A rate limit that allows short bursts (token bucket, as in RFC 2697)."""

    tokens: float
    at: float
    """Time when `tokens` was last updated, in seconds on the clock of `now`."""

    def take(self, rate_per_s: float, burst: int, now: float) -> float:
        """Take a token and return 0; if there is none, return the seconds until one is available."""
        self.tokens = min(float(burst), self.tokens + max(0.0, now - self.at) * rate_per_s)
        self.at = now
        if self.tokens < 1.0:
            return (1.0 - self.tokens) / rate_per_s
        self.tokens -= 1.0
        return 0.0


@dataclass(slots=True)
class DailyCount:
    """Number of requests since midnight UTC."""

    day: date = date.min
    count: int = 0

    def take(self, allowed: int, now: datetime) -> float:
        """Count a request and return 0; if the quota is used up, return the seconds until midnight UTC."""
        today = now.astimezone(timezone.utc).date()
        if today != self.day:
            self.day, self.count = today, 0
        if self.count >= allowed:
            midnight = datetime.combine(today + timedelta(days=1), time(), timezone.utc)
            return (midnight - now).total_seconds()
        self.count += 1
        return 0.0


class KeyUsage(Protocol):
    """Usage of keys, counted against their limits. Used on the event loop; its methods never wait."""

    def take_token(self, key_id: str, rate_per_s: float, burst: int) -> float:
        """Count a request against a rate and return 0; if it is over the rate, return the seconds to wait.

        Raises:
            NotReady: code `ledger_unavailable`: the ledger cannot be read now.
        """

    def take_request(self, key_id: str, allowed: int) -> float:
        """Count a request against a daily quota and return 0; if it is used up, return the seconds until midnight UTC.

        Raises:
            NotReady: as `take_token`.
        """

    def keep_only(self, key_ids: Collection[str]) -> None:
        """Forget the usage of all other keys, which were removed."""


@dataclass(slots=True)
class LocalKeyUsage:
    """Usage of keys in this process since its start. See `KeyUsage`."""

    clock: Callable[[], float]
    now: Callable[[], datetime]
    _buckets: dict[str, TokenBucket] = field(default_factory=dict)
    _days: dict[str, DailyCount] = field(default_factory=dict)

    def take_token(self, key_id: str, rate_per_s: float, burst: int) -> float:
        """See `KeyUsage`."""
        bucket = self._buckets.get(key_id)
        if bucket is None:
            bucket = self._buckets[key_id] = TokenBucket(float(burst), self.clock())
        return bucket.take(rate_per_s, burst, self.clock())

    def take_request(self, key_id: str, allowed: int) -> float:
        """See `KeyUsage`."""
        return self._days.setdefault(key_id, DailyCount()).take(allowed, self.now())

    def keep_only(self, key_ids: Collection[str]) -> None:
        """See `KeyUsage`."""
        self._buckets = {key_id: bucket for key_id, bucket in self._buckets.items() if key_id in key_ids}
        self._days = {key_id: day for key_id, day in self._days.items() if key_id in key_ids}
