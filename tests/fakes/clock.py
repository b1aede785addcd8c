"""A clock that a test advances."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """A clock that returns `now`, in seconds; it starts above 0, as real clocks do."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now
