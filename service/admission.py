"""Admission before work: a bounded house, a predicted wait, a computed Retry-After.

Decided when a request's header has arrived, before its body is read, so that a full house costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from service.errors import DeadlineExceeded, Overloaded, ShuttingDown

_SMOOTHING = 0.1
"""Weight of the newest request in the mean service time: about the last twenty count."""


@dataclass(slots=True)
class Admission:
    """Who is in the house. Used on the event loop only."""

    max_requests: int
    inside: int = 0
    draining: bool = False
    service_s: float = field(default=0.0)
    """Smoothed seconds of device time that one request costs; 0 until the first has been served."""

    @property
    def predicted_wait_s(self) -> float:
        """How long a request that arrives now would wait for the device."""
        return self.inside * self.service_s

    def observe(self, device_s: float) -> None:
        """A request was served and took that much of the device's time."""
        weight = _SMOOTHING if self.service_s else 1.0
        self.service_s += weight * (device_s - self.service_s)

    @contextmanager
    def admit(self, allowed_s: float, *, asked_by_client: bool) -> Iterator[None]:
        """Hold a place in the house.

        Args:
            allowed_s: the request's deadline, from now.
            asked_by_client: whether the client named that deadline itself.

        Raises:
            ShuttingDown: the server drains.
            Overloaded: the house is full, or the queue is longer than the server's own deadline.
            DeadlineExceeded: the client's own deadline would pass before its turn.
        """
        self._check(allowed_s, asked_by_client)
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    def _check(self, allowed_s: float, asked_by_client: bool) -> None:
        if self.draining:
            raise ShuttingDown("the server is shutting down; ask another replica", retry_after_s=1)
        wait_s = self.predicted_wait_s
        if self.inside >= self.max_requests:
            raise Overloaded(
                f"all {self.max_requests} places are taken; retry in {self.retry_after_s()} s",
                retry_after_s=self.retry_after_s(),
            )
        if wait_s <= allowed_s:
            return
        if asked_by_client:
            raise DeadlineExceeded(
                f"the queue is {wait_s * 1e3:.0f} ms long and {allowed_s * 1e3:.0f} ms were allowed; allow more",
                retry_after_s=math.ceil(wait_s - allowed_s),
            )
        raise Overloaded(f"the queue is {wait_s:.1f} s long", retry_after_s=math.ceil(wait_s - allowed_s))

    def retry_after_s(self) -> int:
        """Whole seconds until the queue of now has been served: its length times the measured service time."""
        return max(1, math.ceil(self.predicted_wait_s))
