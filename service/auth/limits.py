"""Limits of one key: a rate with bursts, and a daily quota. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone


@dataclass(slots=True)
class TokenBucket:
    """A rate limit that allows short bursts (token bucket, as in RFC 2697)."""

    tokens: float
    at: float
    """When `tokens` was last updated, in seconds on the clock of `now`."""

    def take(self, rate_per_s: float, burst: int, now: float) -> float:
        """Take a token and return 0; if there is none, return the seconds until there is one."""
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
