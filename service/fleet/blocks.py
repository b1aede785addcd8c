"""Blocks of a limit that several processes share: each process fetches blocks in advance, so that no request waits.

Pure. A request is admitted from the block in hand, or on credit while the next block is fetched. The next block repays
the credit. Credit is limited to one block or, if larger, the process's share of half of what the limit had left at the
last fetch, if that was within a second. So the limit is exceeded by at most about one block for each process, and as
much may stay unused.
"""

from __future__ import annotations

from dataclasses import dataclass

_SHARE = 50
"""Blocks of all processes together are a fiftieth of the limit."""
_RATE_S = 0.05
"""Seconds that a block of a rate lasts at least; longer than it takes to fetch the next one."""
_RETRY_S = 0.05
_SHARE_VALID_S = 1.0


def block_of_rate(rate_per_s: float, burst: int, processes: int) -> float:
    """The size of a block of a rate with bursts, at least 1."""
    return max(1.0, burst / (_SHARE * processes), rate_per_s * _RATE_S)


def block_of_quota(allowed: int, processes: int) -> float:
    """The size of a block of a quota, at least 1."""
    return float(max(1, allowed // (_SHARE * processes)))


@dataclass(slots=True)
class Block:
    """A process's holding of one limit. Times are in seconds on the clock of `now`.

    left: requests that may still be admitted; negative: requests that were admitted on credit.
    none_until: time before which the shared limit has nothing left.
    share: this process's share of half of what the shared limit had left at `share_received_at`.
    """

    left: float = 0.0
    none_until: float = 0.0
    share: float = 0.0
    share_received_at: float = 0.0

    def take(self, size: float, now: float) -> float:
        """Count one request and return 0, or return the seconds until one may be admitted; `size` is a block's."""
        if self.left < 1.0:
            if now < self.none_until:
                return self.none_until - now
            credit = max(size, self.share) if now - self.share_received_at < _SHARE_VALID_S else size
            if self.left - 1.0 < -credit:
                return _RETRY_S
        self.left -= 1.0
        return 0.0

    def wanted(self, size: float, now: float) -> float:
        """The number of requests to fetch now; 0 while half a block is in hand, or while the limit is used up."""
        return 0.0 if self.left >= size / 2 or now < self.none_until else size - self.left

    def receive(self, granted: float, wait_s: float, now: float, share: float = 0.0) -> None:
        """Add a block that was fetched.

        Args:
            granted: number of requests in the block.
            wait_s: seconds until the limit has more; 0 if all that was wanted was granted.
            now: the time.
            share: this process's share of half of what the limit still has.
        """
        self.left += granted
        self.none_until = now + wait_s
        self.share, self.share_received_at = share, now
