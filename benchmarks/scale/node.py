"""A node in virtual time: the service's admission, fair order and batching rule, with measured service times.

`Admission`, `ServiceRate`, `Reservations`, `FairScheduler` and `BatchPolicy` are the service's own classes, on the
virtual clock. Only the parts that take time are simulated: the host's cores and the device.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.scale.events import Events
from benchmarks.scale.service_times import ServiceTimes
from service.admission.admission import Admission, AdmissionRequest, AdmittedRequest
from service.admission.request_order import FIRST_POSITION, FairScheduler, QueuePosition
from service.admission.service_rate import ServiceRate
from service.batching.batcher import BatchPolicy, QueueHead, QueueKey
from service.core.flow import Flow


@dataclass(slots=True, eq=False)
class Request:
    """A client's request, which may be sent several times."""

    flow: Flow
    model: int
    arrived_at: float
    allowed_s: float
    deadline_from_client: bool
    request_id: str
    attempts: int = 0


@dataclass(slots=True, eq=False)
class Visit:
    """A request at one node."""

    request: Request
    admitted: AdmittedRequest
    proxy: int
    deadline: float
    front_end: int
    position: QueuePosition = FIRST_POSITION
    batch_size: int = 0

    def __lt__(self, other: Visit) -> bool:
        return self.position < other.position


Answered = Callable[["Node", Visit, bool], None]
"""Called when a node answers a request; the bool is False if the request's deadline passed in the queue."""


@dataclass(slots=True, eq=False)
class Node:
    """One server with one device."""

    number: int
    times: ServiceTimes
    events: Events
    answered: Answered
    max_requests: int = 256
    visits: dict[Visit, None] = field(default_factory=dict)
    """Requests that were admitted and are not answered."""
    lost: bool = False
    """Whether the node died or froze; its requests are never answered then."""
    batches: int = 0
    admission: Admission = field(init=False)
    _scheduler: FairScheduler = field(default_factory=FairScheduler)
    _policy: BatchPolicy = field(init=False)
    _queues: dict[QueueKey, list[Visit]] = field(default_factory=dict)
    _cores_free_at: list[list[float]] = field(init=False)
    """Times in seconds at which each core of each front end becomes free."""
    _front_end: int = 0
    """The front end of the request that arrived last."""
    _rng: random.Random = field(init=False)
    _busy: bool = False

    def __post_init__(self) -> None:
        self.admission = Admission(
            self.max_requests,
            codec_wait_s=self._host_wait_s,
            clock=self.events.clock,
            service_rate=ServiceRate(self.times.max_batch),
        )
        self._policy = BatchPolicy(self.times.max_batch)
        times = self.times
        self._cores_free_at = [[0.0] * (times.host_cores // times.front_ends) for _ in range(times.front_ends)]
        self._rng = random.Random(self.number)

    def take(self, request: Request, proxy: int) -> None:
        """Admit a request and start its work.

        Raises:
            ServiceError: the request is refused.
        """
        if self.times.front_ends > 1:
            self._front_end = int(self._rng.random() * self.times.front_ends)
        admission_request = AdmissionRequest(
            request.allowed_s, request.deadline_from_client, request.flow, request.request_id
        )
        admitted = self.admission.begin(admission_request)
        try:
            self.admission.count_in_flight(admitted)
        except Exception:
            self.admission.end(admitted)
            raise
        visit = Visit(request, admitted, proxy, self.events.now + request.allowed_s, self._front_end)
        self.visits[visit] = None
        self.events.at(self._host_done_at(visit, self.times.host_before_s), self._enqueue, visit)

    def _host_wait_s(self) -> float:
        return max(0.0, self._cores_free_at[self._front_end][0] - self.events.now)

    def _host_done_at(self, visit: Visit, seconds: float) -> float:
        """Assign the work to the first free core of the visit's front end; returns the time at which it is done."""
        cores = self._cores_free_at[visit.front_end]
        done_at = max(self.events.now, cores[0]) + seconds
        heapq.heapreplace(cores, done_at)
        return done_at

    def _enqueue(self, visit: Visit) -> None:
        if self.lost:
            return
        visit.position = self._scheduler.assign(visit.request.flow)
        heapq.heappush(self._queues.setdefault(visit.request.model, []), visit)
        self._form_batch()

    def _form_batch(self) -> None:
        """Start the next batch if the device is idle: as many requests as fit, from the queue with the next entry."""
        while not self._busy and self._queues:
            heads = [QueueHead(model, queue[0].position) for model, queue in self._queues.items()]
            model = self._policy.queue_order(heads)[0]
            queue, batch = self._queues[model], list[Visit]()
            while queue and len(batch) < self._policy.largest_batch(self.times.max_batch):
                visit = heapq.heappop(queue)
                if self.events.now >= visit.deadline:
                    self._end(visit, in_time=False)
                    continue
                self._scheduler.start(visit.position)
                batch.append(visit)
            if not queue:
                del self._queues[model]
            if batch:
                self._busy = True
                self.batches += 1
                self.events.at(self.events.now + self.times.batch_s(len(batch)), self._batch_done, batch)

    def _batch_done(self, batch: list[Visit]) -> None:
        if self.lost:
            return
        for visit in batch:
            visit.batch_size = len(batch)
            self.events.at(self._host_done_at(visit, self.times.host_after_s), self._finish, visit)
        self.events.at(self.events.now + self.times.between_batches_s, self._device_free)

    def _device_free(self) -> None:
        self._busy = False
        if not self.lost:
            self._form_batch()

    def _finish(self, visit: Visit) -> None:
        if self.lost:
            return
        times, size = self.times, visit.batch_size
        batch_s = times.batch_s(size)
        self.admission.service_rate.add_measurement(
            [(size, batch_s)], times.host_before_s + batch_s + times.host_after_s
        )
        self._end(visit, in_time=self.events.now <= visit.deadline)

    def _end(self, visit: Visit, *, in_time: bool) -> None:
        del self.visits[visit]
        self.admission.end(visit.admitted)
        self.answered(self, visit, in_time)
