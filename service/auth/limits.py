"""How much one key may ask for: a rate with bursts, and a quota a day. All pure; time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone


@dataclass(slots=True)
class TokenBucket:
    """A rate limit that lets short bursts through (the generic cell rate, as RFC 2697's single-rate meter)."""

    tokens: float
    at: float
    """The clock's time, in seconds, at which there were that many tokens."""

    def take(self, rate_per_s: float, burst: int, now: float) -> float:
        """Seconds until one more would be let through; 0 when this one is."""
        self.tokens = min(float(burst), self.tokens + max(0.0, now - self.at) * rate_per_s)
        self.at = now
        if self.tokens < 1.0:
            return (1.0 - self.tokens) / rate_per_s
        self.tokens -= 1.0
        return 0.0


@dataclass(slots=True)
class DailyCount:
    """What was asked for since midnight UTC."""

    day: date = date.min
    count: int = 0

    def take(self, allowed: int, now: datetime) -> float:
        """Seconds until the next midnight UTC when all is used up; 0 when this one is let through, and counted."""
        today = now.astimezone(timezone.utc).date()
        if today != self.day:
            self.day, self.count = today, 0
        if self.count >= allowed:
            midnight = datetime.combine(today + timedelta(days=1), time(), timezone.utc)
            return (midnight - now).total_seconds()
        self.count += 1
        return 0.0
