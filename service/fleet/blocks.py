"""Blocks of a limit that several processes share: each takes some in advance, so that no request waits for the others.

Pure. A request is admitted from the block in hand, or on credit while the next block is fetched. Credit is paid with
the next block. It is one block, or a process's share of half of what was left a moment ago; so the limit is exceeded by
about one block of each process at most, and as much of it may stay unused.
"""

from __future__ import annotations

from dataclasses import dataclass

_SHARE = 50
"""Blocks of all processes together are a fiftieth of the limit."""
_RATE_S = 0.05
"""Least seconds that a block of a rate lasts; longer than it takes to fetch the next one."""
_SOON_S = 0.05
_MOMENT_S = 1.0


def block_of_rate(rate_per_s: float, burst: int, processes: int) -> float:
    """The size of a block of a rate with bursts, at least 1."""
    return max(1.0, burst / (_SHARE * processes), rate_per_s * _RATE_S)


def block_of_quota(allowed: int, processes: int) -> float:
    """The size of a block of a quota, at least 1."""
    return float(max(1, allowed // (_SHARE * processes)))


@dataclass(slots=True)
class Block:
    """A process's holding of one limit. Times are in seconds on the clock of `now`.

    left: how many requests; negative ones were admitted on credit.
    none_until: the shared limit has none before.
    share: this process's share of what the shared limit had at `told_at`.
    """

    left: float = 0.0
    none_until: float = 0.0
    share: float = 0.0
    told_at: float = 0.0

    def take(self, size: float, now: float) -> float:
        """Take one and return 0, or return the seconds until there may be one; `size` is that of a block."""
        if self.left < 1.0:
            if now < self.none_until:
                return self.none_until - now
            credit = max(size, self.share) if now - self.told_at < _MOMENT_S else size
            if self.left - 1.0 < -credit:
                return _SOON_S
        self.left -= 1.0
        return 0.0

    def wanted(self, size: float, now: float) -> float:
        """How many to fetch now: none while half a block is in hand, or the limit has none."""
        return 0.0 if self.left >= size / 2 or now < self.none_until else size - self.left

    def receive(self, granted: float, wait_s: float, now: float, share: float = 0.0) -> None:
        """Add what was fetched.

        Args:
            granted: how many.
            wait_s: seconds until the limit has more; 0 if it gave all that was wanted.
            now: seconds.
            share: this process's share of half of what the limit still has.
        """
        self.left += granted
        self.none_until = now + wait_s
        self.share, self.told_at = share, now
