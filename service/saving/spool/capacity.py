"""The capacity of the spool: how many results may wait to be saved, and when a refused client should return.

`SpoolCapacity` decides and does nothing else: no locks, no threads, no clock. `Backlog` guards it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from service.core.errors import Overloaded

DRAIN_WINDOW_S = 30.0
"""Window in seconds over which the current rate of saving is measured."""
UNKNOWN_DRAIN_RETRY_S = 5.0
"""Retry-After in seconds if nothing was saved in that window: the disk fails, or work has just begun."""
MAX_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """Limits of promised and waiting results together: their number and their bytes."""

    max_items: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts to save to a failing storage: doubling from `first_s` up to `longest_s`."""

    first_s: float = 0.1
    longest_s: float = 5.0

    def pause_s(self, failures: int) -> float:
        """Return the pause in seconds after that many failures in a row."""
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 32))


class _SaveRecord(NamedTuple):
    at: float
    size: int


class SpoolCapacity:
    """Counts reserved and waiting results, and refuses those that do not fit."""

    def __init__(self, limits: SpoolLimits) -> None:
        self._limits = limits
        self._saved: deque[_SaveRecord] = deque(maxlen=512)
        self.reserved_items = 0
        self.reserved_bytes = 0
        self.waiting_items = 0
        self.waiting_bytes = 0

    @property
    def items(self) -> int:
        """Number of results reserved or waiting."""
        return self.reserved_items + self.waiting_items

    @property
    def bytes(self) -> int:
        """Bytes reserved or waiting; a reservation counts with its estimate."""
        return self.reserved_bytes + self.waiting_bytes

    @property
    def free_items(self) -> int:
        """Estimate of how many more results of the waiting ones' average size fit; 0 if the spool is full."""
        free_items = self._limits.max_items - self.items
        if self.waiting_bytes:
            free_bytes = self._limits.max_bytes - self.bytes
            free_items = min(free_items, free_bytes * self.waiting_items // self.waiting_bytes)
        return max(0, free_items)

    def reserve(self, estimate: int, now: float) -> None:
        """Reserve space for a result of about `estimate` bytes.

        A result larger than the whole spool is accepted if the spool is empty; otherwise it could never be saved.

        Raises:
            Overloaded: code `spool_full`; `retry_after_s` predicts when there will be space.
        """
        items_over = self.items + 1 - self._limits.max_items
        bytes_over = self.bytes + estimate - self._limits.max_bytes if self.items else 0
        if items_over > 0 or bytes_over > 0:
            raise Overloaded(
                f"{self.items} results ({self.bytes / 2**20:.1f} MiB) wait to be saved and the spool is full",
                code="spool_full",
                advice="try again later, send save=false, or raise spool_max_items",
                retry_after_s=self._retry_after_s(items_over, bytes_over, now),
            )
        self.reserved_items += 1
        self.reserved_bytes += estimate

    def release(self, estimate: int) -> None:
        """Cancel a reservation."""
        self.reserved_items -= 1
        self.reserved_bytes -= estimate

    def fill(self, estimate: int, size: int) -> None:
        """Turn a reservation into a waiting result of `size` bytes, which may exceed the estimate."""
        self.release(estimate)
        self.inherit(size)

    def inherit(self, size: int) -> None:
        """Count a waiting result without a reservation, such as one from a dead process."""
        self.waiting_items += 1
        self.waiting_bytes += size

    def drain(self, size: int, now: float) -> None:
        """Stop counting a waiting result of `size` bytes that became durable at `now`."""
        self.waiting_items -= 1
        self.waiting_bytes -= size
        self._saved.append(_SaveRecord(now, size))

    def _retry_after_s(self, items_over: int, bytes_over: int, now: float) -> float:
        """Return the seconds until the excess is saved at the recent rate."""
        recent = [saved for saved in self._saved if now - saved.at <= DRAIN_WINDOW_S]
        if not recent:
            return UNKNOWN_DRAIN_RETRY_S
        elapsed_s = max(now - recent[0].at, 1e-3)
        items_per_s = len(recent) / elapsed_s
        bytes_per_s = max(sum(saved.size for saved in recent), 1) / elapsed_s
        return min(MAX_RETRY_S, max(items_over / items_per_s, bytes_over / bytes_per_s))
