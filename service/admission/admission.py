"""Admission before work: a bounded house, a predicted wait, a computed Retry-After.

Decided when a request's header has arrived, before its body is read, so that a full house costs nothing, and once more
when the body has been read. Clients share the house evenly and higher priorities wait for fewer (fairness.py); who
comes back when told to is let in before newcomers (retry_after.py).
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from service.admission.fairness import ahead
from service.admission.retry_after import Appointments
from service.admission.retry_book import Book, OwnBook
from service.admission.service_rate import Pace
from service.core.errors import DeadlineExceeded, Overloaded, ServiceError, ShuttingDown
from service.core.flow import ANYONE, Flow

_MARGIN = 1.25
"""Predictions are that much longer than measured: an accepted request must keep its deadline."""
_KEPT_SHARE = 4
"""A quarter: of the house for those who come back, and beyond the house for clients that hold less than their share."""
_KEPT_BODIES = 8
"""An eighth of the memory for bodies."""
_SMALL_BODY_BYTES = 8 << 20
"""Hardly a picture below 4 megapixels has a file of more."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request's header says."""

    allowed_s: float
    """Its deadline, from now."""
    asked_by_client: bool = False
    """Whether the client named that deadline itself."""
    flow: Flow = ANYONE
    request_id: str = ""
    """By which the client is known when it comes back."""

    @property
    def who(self) -> tuple[str, str]:
        """Nobody else's id opens the door to a client."""
        return self.flow.client, self.request_id


@dataclass(slots=True)
class Place:
    """A request's place in the house, taken when its header came; it counts as waiting once its body is read."""

    ask: Ask
    arrived: bool = False
    apart: bool = False
    """Whether its pictures are large: nobody waits behind it here, and it takes no place of others."""
    body_bytes: int = 0
    """Of its body, in memory until it leaves."""


class House(Protocol):
    """The house that several front ends share: its places, and the engines that serve it."""

    @property
    def others(self) -> int:
        """Requests that are inside at the other front ends."""

    @property
    def engines(self) -> int:
        """How many work, at least 1."""

    @property
    def book(self) -> Book:
        """Who was told to come back, by any of them."""

    def tell(self, inside: int) -> None:
        """So many are inside here."""


@dataclass(frozen=True, slots=True)
class OwnHouse:
    """There is one front end only."""

    others: int = 0
    engines: int = 1
    book: Book = field(default_factory=OwnBook)

    def tell(self, inside: int) -> None:
        """Nobody wants to know."""


@dataclass(slots=True)
class Admission:
    """Who is in the house. Used on the event loop only."""

    max_requests: int
    max_uploads: int = 1024
    """Requests whose bodies are being read: slow clients take no place of those that could be computed."""
    codec_wait_s: Callable[[], float] = lambda: 0.0
    """How long an upload that comes now would wait to be decoded, and for the event loop."""
    clock: Callable[[], float] = lambda: 0.0
    pace: Pace = field(default_factory=Pace)
    appointments: Appointments = field(default_factory=Appointments)
    house: House = field(default_factory=OwnHouse)
    max_bodies_bytes: float = math.inf
    """Of the bodies of all who are inside or upload: few large ones take as much memory as many small ones."""
    bodies_bytes: int = 0
    inside: int = 0
    """Requests that are computed or wait for it."""
    apart: int = 0
    """Those of them with large pictures, which queue for memory and not here."""
    uploading: int = 0
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: Counter[Flow] = field(default_factory=Counter)
    """Those inside and not apart, by whose they are."""

    @contextmanager
    def admit(self, ask: Ask) -> Iterator[Place]:
        """Let a request in when its header has come; it leaves when the block ends.

        Raises:
            ShuttingDown: the server drains.
            Overloaded: the house is full, or the queue is longer than the server's own deadline.
            DeadlineExceeded: the client's own deadline would pass before its answer.
        """
        if (refusal := self._refusal(ask, self.clock())) is not None:
            raise refusal
        place = Place(ask)
        self.uploading += 1
        try:
            yield place
        finally:
            self.bodies_bytes -= place.body_bytes
            if place.arrived:
                place.arrived = False
                self._leave(place)
            else:
                self.uploading -= 1

    def hold(self, place: Place, nbytes: int) -> None:
        """So much more of the request's body is in memory. A body larger than all that may be is let in alone.

        Large bodies leave an eighth of the memory to small ones.

        Raises:
            Overloaded: the bodies of others take the memory that there is for them.
        """
        others = self.bodies_bytes - place.body_bytes
        kept = self.max_bodies_bytes / _KEPT_BODIES if place.body_bytes + nbytes > _SMALL_BODY_BYTES else 0.0
        if others and self.bodies_bytes + nbytes + kept > self.max_bodies_bytes:
            raise Overloaded(
                f"request bodies take {self.bodies_bytes / 2**20:.0f} MiB; try again later",
                retry_after_s=self.retry_after_s(),
            )
        place.body_bytes += nbytes
        self.bodies_bytes += nbytes

    def arrive(self, place: Place) -> None:
        """The request's body has been read.

        Raises:
            ShuttingDown, Overloaded: as `admit`; the house filled or began to drain in the meantime.
        """
        if self.draining.is_set():
            raise ShuttingDown("the server is shutting down; ask another replica")
        ask, flow = place.ask, place.ask.flow
        over = self.ordinary + self.house.others - self._places(flow)
        if over >= 0:
            now = self.clock()
            request_s = self._request_s(now)
            raise self._full(self.appointments.book(ask.who, over * request_s, request_s, now))
        place.arrived = True
        self.uploading -= 1
        self.inside += 1
        self.house.tell(self.ordinary)
        self.waiting[flow] += 1

    def set_apart(self, place: Place) -> None:
        """The request's pictures are large. Its place is free for another, unless a whole house is apart already."""
        if place.arrived and not place.apart and self.apart < self.max_requests:
            place.apart = True
            self.apart += 1
            self._forget(place.ask.flow)

    @property
    def ordinary(self) -> int:
        """Requests inside that others wait behind."""
        return self.inside - self.apart

    def predicted_wait_s(self, flow: Flow = ANYONE) -> float:
        """How long a request that this flow sends now would wait for its turn."""
        return self.codec_wait_s() + ahead(flow, self.waiting) * self._request_s(self.clock())

    def retry_after_s(self) -> int:
        """Whole seconds until the queue of now has been served: its length times the measured service time."""
        return max(1, math.ceil(self.ordinary * self._request_s(self.clock()) + self.codec_wait_s()))

    def _refusal(self, ask: Ask, now: float) -> ServiceError | None:
        """Why the request is not let in; None if it is."""
        if self.draining.is_set():
            return ShuttingDown("the server is shutting down; ask another replica")
        if self.uploading >= self.max_uploads:
            return Overloaded(f"{self.max_uploads} uploads are being read", retry_after_s=self.retry_after_s())
        request_s = self._request_s(now)
        wait_s = _MARGIN * (ahead(ask.flow, self.waiting) * request_s + self.codec_wait_s()) + self.pace.own_s
        places = self._places(ask.flow)
        kept = 0.0 if self.appointments.redeem(ask.who, now) else self._kept(ask.allowed_s, request_s, now)
        spare_s = ask.allowed_s - wait_s - kept * request_s
        taken = self.ordinary + self.house.others + kept
        if taken < places and (spare_s >= 0 or not self.ordinary):
            return None
        until_s = max(-spare_s, (taken - places) * request_s)
        pause_s = self.appointments.book(ask.who, until_s, request_s, now)
        if taken >= places:
            return self._full(pause_s)
        queue = f"the answer would take {wait_s * 1e3:.0f} ms"
        if ask.asked_by_client:
            return DeadlineExceeded(
                f"{queue} and {ask.allowed_s * 1e3:.0f} ms were allowed; allow more, or come back with this "
                f"request's X-Request-ID in {pause_s} s",
                retry_after_s=pause_s,
            )
        return Overloaded(f"{queue}; come back with this X-Request-ID in {pause_s} s", retry_after_s=pause_s)

    def _request_s(self, now: float) -> float:
        """Seconds that each request of ours adds to the wait of the next, with those of other front ends between."""
        own = max(1, self.ordinary)
        return self.pace.request_s(now, (own + self.house.others) / (own * self.house.engines))

    def _kept(self, allowed_s: float, request_s: float, now: float) -> float:
        """Places that are not for newcomers; a part of those only that the deadline leaves."""
        usable = min(self.max_requests, allowed_s / request_s) if request_s else self.max_requests
        return min(self.appointments.expected(now), usable / _KEPT_SHARE)

    def _places(self, flow: Flow) -> int:
        """How many may be inside for this flow to be let in: a few more for one that holds less than its share."""
        held = self.waiting.get(flow, 0)
        flows = len(self.waiting) + (not held)
        below = flows > 1 and (held + 1) * flows <= self.max_requests
        return self.max_requests + (self.max_requests // _KEPT_SHARE if below else 0)

    @staticmethod
    def _full(pause_s: int) -> Overloaded:
        return Overloaded(
            f"all places are taken; come back with this request's X-Request-ID in {pause_s} s", retry_after_s=pause_s
        )

    def _leave(self, place: Place) -> None:
        self.inside -= 1
        if place.apart:
            self.apart -= 1
            return
        self._forget(place.ask.flow)
        self.pace.left(self.ordinary, self.clock())

    def _forget(self, flow: Flow) -> None:
        self.house.tell(self.ordinary)
        self.waiting[flow] -= 1
        if not self.waiting[flow]:
            del self.waiting[flow]
