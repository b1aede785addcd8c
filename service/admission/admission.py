"""Admission control: a limit on requests in flight, a predicted wait, and a computed Retry-After.

A request is checked when its header has arrived, so that a refusal costs little, and again when its body has been read.
Clients share the limit evenly, and higher priorities wait behind fewer requests (request_order.py). A client that
returns at its Retry-After is admitted before new ones (retry_after.py).
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from service.admission.request_order import requests_ahead
from service.admission.retry_after import Reservations
from service.admission.server_load import ServerLoad, SingleFrontEndLoad
from service.admission.service_rate import ServiceRate
from service.core.errors import DeadlineExceeded, Overloaded, ServiceError, ShuttingDown
from service.core.flow import ANYONE, Flow

_MARGIN = 1.25
"""Safety factor on the predicted wait, so that an accepted request keeps its deadline."""
_RESERVED_DIVISOR = 4
"""Divisor of the limit: at most a quarter is reserved for returning clients, and clients that hold less than their
share may exceed the limit by a quarter."""
_SMALL_BODIES_DIVISOR = 8
"""An eighth of the memory for bodies is reserved for small ones."""
_SMALL_BODY_BYTES = 8 << 20
"""Largest small body; nearly all files of pictures below 4 megapixels are smaller."""


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """The facts about a request that admission needs, all from its header."""

    allowed_s: float
    """Seconds from now to its deadline."""
    deadline_from_client: bool = False
    """Whether the client chose the deadline (`X-Request-Timeout-Ms`)."""
    flow: Flow = ANYONE
    request_id: str = ""
    """Its `X-Request-ID`, which a client sends again when it retries."""

    @property
    def retry_key(self) -> tuple[str, str]:
        """Key of the request's reservation: client and request id, so that no client can use another's reservation."""
        return self.flow.client, self.request_id


@dataclass(slots=True)
class AdmittedRequest:
    """A request that was admitted by its header; it counts as in flight once its body has been read."""

    request: AdmissionRequest
    body_read: bool = False
    large: bool = False
    """Whether its pictures are large; it then queues for memory and does not count towards the limit."""
    body_bytes: int = 0
    """Bytes of the request's body in memory; counted until the request ends."""


@dataclass(slots=True)
class Admission:
    """Admits requests and counts those in flight. Used on the event loop only."""

    max_requests: int
    max_uploads: int = 1024
    """Limit of requests whose bodies are being read; separate, because a slow upload does not use an engine."""
    codec_wait_s: Callable[[], float] = lambda: 0.0
    """Seconds that a request arriving now would wait for a codec thread and the event loop."""
    clock: Callable[[], float] = lambda: 0.0
    service_rate: ServiceRate = field(default_factory=ServiceRate)
    reservations: Reservations = field(default_factory=Reservations)
    server_load: ServerLoad = field(default_factory=SingleFrontEndLoad)
    max_bodies_bytes: float = math.inf
    """Limit of the memory for all request bodies, because a few large ones take as much as many small ones."""
    bodies_bytes: int = 0
    in_flight: int = 0
    """Requests whose bodies have been read and that have not ended."""
    large_in_flight: int = 0
    """Requests in flight with large pictures, which queue for memory and do not count towards the limit."""
    uploading: int = 0
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: Counter[Flow] = field(default_factory=Counter)
    """Requests in flight without large pictures, by flow."""

    def admit(self, request: AdmissionRequest) -> _Admitting:
        """Admit a request by its header, for the length of a `with` block, which gets an `AdmittedRequest`.

        Raises:
            ShuttingDown: on entering the block: the server drains.
            Overloaded: the limit is reached, or the wait would exceed the server's own deadline.
            DeadlineExceeded: the wait would exceed the client's own deadline.
        """
        return _Admitting(self, request)

    def begin(self, request: AdmissionRequest) -> AdmittedRequest:
        """Admit a request that the caller must pass to `end`; `admit` calls this and lists the errors."""
        if (refusal := self._refusal_error(request, self.clock())) is not None:
            raise refusal
        self.uploading += 1
        return AdmittedRequest(request)

    def end(self, admitted: AdmittedRequest) -> None:
        """End a request, whether it was answered, failed or was cancelled."""
        self.bodies_bytes -= admitted.body_bytes
        if admitted.body_read:
            admitted.body_read = False
            self._end_in_flight(admitted)
        else:
            self.uploading -= 1

    def count_body_bytes(self, admitted: AdmittedRequest, nbytes: int) -> None:
        """Count more bytes of the request's body; a body above the limit is accepted if no other is in memory.

        Large bodies leave an eighth of the memory to small ones.

        Raises:
            Overloaded: the bodies of other requests leave too little memory.
        """
        others = self.bodies_bytes - admitted.body_bytes
        reserved = (
            self.max_bodies_bytes / _SMALL_BODIES_DIVISOR if admitted.body_bytes + nbytes > _SMALL_BODY_BYTES else 0.0
        )
        if others and self.bodies_bytes + nbytes + reserved > self.max_bodies_bytes:
            raise Overloaded(
                f"request bodies already use {self.bodies_bytes / 2**20:.0f} MiB of memory; try again later",
                retry_after_s=self.retry_after_s(),
            )
        admitted.body_bytes += nbytes
        self.bodies_bytes += nbytes

    def count_in_flight(self, admitted: AdmittedRequest) -> None:
        """Count a request as in flight, after its body has been read.

        Raises:
            ShuttingDown, Overloaded: as `admit`; the drain began or the limit was reached in the meantime.
        """
        if self.draining.is_set():
            raise ShuttingDown("the server is shutting down; ask another replica")
        request, flow = admitted.request, admitted.request.flow
        over = self.ordinary_in_flight + self.server_load.in_flight_elsewhere - self._limit_for_flow(flow)
        if over >= 0:
            now = self.clock()
            request_s = self._seconds_per_request(now)
            raise self._overloaded_error(self.reservations.reserve(request.retry_key, over * request_s, request_s, now))
        admitted.body_read = True
        self.uploading -= 1
        self.in_flight += 1
        self._publish()
        self.waiting[flow] += 1

    def mark_large(self, admitted: AdmittedRequest, *, computed: bool = False) -> None:
        """Stop counting a large request towards the limit; at most `max_requests` large ones are exempt.

        A request that was `computed` counts as served.
        """
        if admitted.body_read and not admitted.large and self.large_in_flight < self.max_requests:
            admitted.large = True
            self.large_in_flight += 1
            self._remove_from_queue(admitted.request.flow, served=computed)

    @property
    def ordinary_in_flight(self) -> int:
        """Requests in flight without large pictures: those that count towards the limit."""
        return self.in_flight - self.large_in_flight

    def predicted_wait_s(self, flow: Flow = ANYONE, request_s: float | None = None) -> float:
        """Seconds that a request of this flow, arriving now, would wait until it is computed.

        If no request waits here, the wait is predicted from the samples of other front ends that the engines have yet
        to compute.

        `request_s`: seconds that each waiting request adds, if the caller knows them; 0 until one was measured.
        """
        each_s = self._seconds_per_request(self.clock()) if request_s is None else request_s
        queue_s = requests_ahead(flow, self.waiting) * each_s if self.waiting else self._wait_behind_others_s(flow)
        return self.codec_wait_s() + queue_s

    def retry_after_s(self) -> int:
        """Whole seconds until the present queue has been served: its length times the measured time per request."""
        queue = self.ordinary_in_flight or self.server_load.in_flight_elsewhere / self.server_load.front_ends
        return max(1, math.ceil(queue * self._seconds_per_request(self.clock()) + self.codec_wait_s()))

    def _refusal_error(self, request: AdmissionRequest, now: float) -> ServiceError | None:
        """The error that refuses a request; None if it is admitted."""
        if self.draining.is_set():
            return ShuttingDown("the server is shutting down; ask another replica")
        if self.uploading >= self.max_uploads:
            return Overloaded(
                f"{self.max_uploads} uploads are in progress, the limit; try again later",
                retry_after_s=self.retry_after_s(),
            )
        request_s = self._seconds_per_request(now)
        wait_s = _MARGIN * self.predicted_wait_s(request.flow, request_s) + self.service_rate.unloaded_s
        limit = self._limit_for_flow(request.flow)
        reserved = (
            0.0
            if self.reservations.redeem(request.retry_key, now)
            else self._reserved_requests(request.allowed_s, request_s, now)
        )
        spare_s = request.allowed_s - wait_s - reserved * request_s
        if not self.ordinary_in_flight:  # the other terms are measured only while requests are admitted
            spare_s = request.allowed_s - _MARGIN * self._wait_behind_others_s(request.flow)
        taken = self.ordinary_in_flight + self.server_load.in_flight_elsewhere + reserved
        if taken < limit and spare_s >= 0:
            return None
        until_s = max(-spare_s, (taken - limit) * request_s)
        retry_after_s = self.reservations.reserve(request.retry_key, until_s, request_s, now)
        if taken >= limit:
            return self._overloaded_error(retry_after_s)
        queue = f"the answer would take {wait_s * 1e3:.0f} ms"
        if request.deadline_from_client:
            return DeadlineExceeded(
                f"{queue} and {request.allowed_s * 1e3:.0f} ms were allowed; allow more time, or retry in "
                f"{retry_after_s} s with this request's X-Request-ID",
                retry_after_s=retry_after_s,
            )
        return Overloaded(
            f"{queue}; retry in {retry_after_s} s with this request's X-Request-ID", retry_after_s=retry_after_s
        )

    def _seconds_per_request(self, now: float) -> float:
        """Seconds that each request here adds to the wait of the next, including the share of other front ends."""
        own, load = self.ordinary_in_flight, self.server_load
        elsewhere = load.in_flight_elsewhere
        busy = 1 + elsewhere / own if own else load.front_ends if elsewhere else 1
        return self.service_rate.request_s(now, busy / load.engines, load.sample_s)

    def _wait_behind_others_s(self, flow: Flow) -> float:
        """Seconds that a request of this flow waits for the engines behind those of other front ends alone."""
        load = self.server_load
        return load.samples_ahead(flow) * load.sample_s if load.in_flight_elsewhere else 0.0

    def _reserved_requests(self, allowed_s: float, request_s: float, now: float) -> float:
        """Number of requests reserved for expected returning clients; at most a quarter of what can be served."""
        usable = min(self.max_requests, allowed_s / request_s) if request_s else self.max_requests
        return min(self.reservations.expected_returns(now), usable / _RESERVED_DIVISOR)

    def _limit_for_flow(self, flow: Flow) -> int:
        """The limit for this flow; a quarter higher for a flow that holds less than its share."""
        own = self.waiting.get(flow, 0)
        flows = len(self.waiting) + (not own)
        below = flows > 1 and (own + 1) * flows <= self.max_requests
        return self.max_requests + (self.max_requests // _RESERVED_DIVISOR if below else 0)

    @staticmethod
    def _overloaded_error(retry_after_s: int) -> Overloaded:
        return Overloaded(
            f"the server is full; retry in {retry_after_s} s with this request's X-Request-ID",
            retry_after_s=retry_after_s,
        )

    def _end_in_flight(self, admitted: AdmittedRequest) -> None:
        self.in_flight -= 1
        if admitted.large:
            self.large_in_flight -= 1
            self._publish()
            return
        self._remove_from_queue(admitted.request.flow, served=True)

    def _publish(self) -> None:
        self.server_load.publish(self.ordinary_in_flight, self.large_in_flight)

    def _remove_from_queue(self, flow: Flow, *, served: bool) -> None:
        self._publish()
        self.waiting[flow] -= 1
        if not self.waiting[flow]:
            del self.waiting[flow]
        if served:
            self.service_rate.count_reply(self.ordinary_in_flight, self.clock())


class _Admitting:
    """The `with` block of an admitted request; a class, because a generator would take three times as long."""

    __slots__ = ("_admission", "_admitted", "_request")
    _admitted: AdmittedRequest

    def __init__(self, admission: Admission, request: AdmissionRequest) -> None:
        self._admission, self._request = admission, request

    def __enter__(self) -> AdmittedRequest:
        self._admitted = self._admission.begin(self._request)
        return self._admitted

    def __exit__(self, *_: object) -> None:
        self._admission.end(self._admitted)
