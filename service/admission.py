"""Admission before work: a bounded house, a predicted wait, a computed Retry-After.

Decided when a request's header has arrived, before its body is read, so that a full house costs nothing, and once more
when the body has been read.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from service.errors import DeadlineExceeded, Overloaded, ShuttingDown

_SMOOTHING = 0.1
"""Weight of the newest request in the mean service time: about the last twenty count."""


@dataclass(slots=True)
class Place:
    """A request's place in the house, taken when its header came; it counts as waiting once its body is read."""

    arrived: bool = False


@dataclass(slots=True)
class Admission:
    """Who is in the house. Used on the event loop only."""

    max_requests: int
    max_uploads: int = 1024
    """Requests whose bodies are being read: slow clients take no place of those that could be computed."""
    codec_wait_s: Callable[[], float] = lambda: 0.0
    """How long an upload that comes now would wait to be decoded."""
    inside: int = 0
    """Requests that are computed or wait for it."""
    uploading: int = 0
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    service_s: float = 0.0
    """Smoothed seconds of device time that one request costs; 0 until the first has been served."""

    @property
    def predicted_wait_s(self) -> float:
        """How long a request that arrives now would wait for its turn."""
        return self.inside * self.service_s + self.codec_wait_s()

    def observe(self, device_s: float) -> None:
        """A request was served and took that much of the device's time."""
        weight = _SMOOTHING if self.service_s else 1.0
        self.service_s += weight * (device_s - self.service_s)

    @contextmanager
    def admit(self, allowed_s: float, *, asked_by_client: bool) -> Iterator[Place]:
        """Let a request in when its header has come; it leaves when the block ends.

        Args:
            allowed_s: the request's deadline, from now.
            asked_by_client: whether the client named that deadline itself.

        Raises:
            ShuttingDown: the server drains.
            Overloaded: the house is full, or the queue is longer than the server's own deadline.
            DeadlineExceeded: the client's own deadline would pass before its turn.
        """
        self._check(allowed_s, asked_by_client)
        place = Place()
        self.uploading += 1
        try:
            yield place
        finally:
            if place.arrived:
                self.inside -= 1
            else:
                self.uploading -= 1

    def arrive(self, place: Place) -> None:
        """The request's body has been read.

        Raises:
            ShuttingDown, Overloaded: as `admit`; the house filled or began to drain in the meantime.
        """
        self._check_room()
        place.arrived = True
        self.uploading -= 1
        self.inside += 1

    async def until_draining(self) -> None:
        """Return when the server begins to drain."""
        await self.draining.wait()

    def retry_after_s(self) -> int:
        """Whole seconds until the queue of now has been served: its length times the measured service time."""
        return max(1, math.ceil(self.predicted_wait_s))

    def _check(self, allowed_s: float, asked_by_client: bool) -> None:
        self._check_room()
        if self.uploading >= self.max_uploads:
            raise Overloaded(f"{self.max_uploads} uploads are being read", retry_after_s=self.retry_after_s())
        wait_s = self.predicted_wait_s
        if wait_s <= allowed_s:
            return
        retry_after_s = math.ceil(wait_s - allowed_s)
        if asked_by_client:
            raise DeadlineExceeded(
                f"the queue is {wait_s * 1e3:.0f} ms long and {allowed_s * 1e3:.0f} ms were allowed; allow more",
                retry_after_s=retry_after_s,
            )
        raise Overloaded(f"the queue is {wait_s:.1f} s long", retry_after_s=retry_after_s)

    def _check_room(self) -> None:
        if self.draining.is_set():
            raise ShuttingDown("the server is shutting down; ask another replica", retry_after_s=1)
        if self.inside >= self.max_requests:
            wait_s = self.retry_after_s()
            raise Overloaded(f"all {self.max_requests} places are taken; retry in {wait_s} s", retry_after_s=wait_s)
