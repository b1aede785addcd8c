"""A request for pictures from its admission to its answer: the steps that every API has in common.

Between `admitted` and `Intake.run_until_deadline` an API reads its own request format, and afterwards it writes its
own response format.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from service.admission.admission import AdmissionRequest, AdmittedRequest
from service.admission.deadline import await_with_deadline
from service.app import Service
from service.core.call import Call
from service.core.errors import Cancelled, DeadlineExceeded, NotFound, NotReady, ShuttingDown, UploadTimeout
from service.core.flow import Flow
from service.core.order import Order
from service.core.reply import Reply
from service.intake.presence import ClientPresence
from service.repeats.attempt import Attempt, ResultsToStore
from service.repeats.request_digests import fingerprint_of, key_name
from service.repeats.response_files import StoredResponse

T = TypeVar("T")
IntakeT = TypeVar("IntakeT", bound="Intake")


@dataclass(frozen=True, slots=True)
class Arrival:
    """Facts about a request that are known before its body is read.

    timeout_s: seconds that the client allows; None if it did not say. priority: 0 (last) to 9 (first).
    traceparent: the identity of its span; empty if it is not traced.
    presence: tells whether the client has disconnected; None if the request's task is cancelled instead, as in gRPC.
    on_model: callback with the name and version of the model that is to compute it, as soon as they are known.
    """

    request_id: str
    client: str
    timeout_s: float | None
    priority: int
    traceparent: str = ""
    presence: ClientPresence | None = None
    on_model: Callable[[str], None] = lambda _: None


@dataclass(slots=True)
class Intake:
    """An admitted request that has not been answered; its body may not have been read yet."""

    arrival: Arrival
    service: Service
    admitted_request: AdmittedRequest
    admission_scope: ExitStack
    """Ends the request's admission when it is closed; a job takes it over."""
    received_at: float
    allowed_s: float
    deadline_from_client: bool
    """Whether the client chose the deadline."""
    flow: Flow
    result_ids: tuple[str, ...] = ()
    """The stored results that were made for it."""
    repeat_key: str | None = None
    """See `Call`; known once its key is read."""
    attempt: Attempt | None = None
    """Known once its key is claimed."""

    @property
    def max_body_bytes(self) -> int:
        """The largest body, as it arrives and unpacked."""
        return int(self.service.settings.max_body_mb * 2**20)

    def count_bytes(self, nbytes: int) -> None:
        """Count memory for the body, before it is used.

        Raises:
            Overloaded: the bodies of other requests leave too little memory.
        """
        self.service.admission.count_body_bytes(self.admitted_request, nbytes)

    async def receive_body(self, reading: Awaitable[T]) -> T:
        """Await the reading of the body, then count the request as in flight.

        Raises:
            UploadTimeout, DeadlineExceeded: the body takes too long.
            ShuttingDown, Overloaded: the server drains, or the limit was reached in the meantime.
            Cancelled: the client disconnected.
        """
        body = await receive_in_time(self.service, reading, self.allowed_s)
        self.service.admission.count_in_flight(self.admitted_request)
        return body

    def take_timeout_and_priority(self, timeout_s: float | None, priority: int | None) -> None:
        """Apply a timeout, in seconds from arrival, and a priority from the body; None keeps the one of the headers.

        The shorter of the client's two timeouts holds, because the client or a proxy may end the request at the
        headers' one.
        """
        if timeout_s is not None:
            self.allowed_s = min(timeout_s, self.allowed_s) if self.deadline_from_client else timeout_s
            self.deadline_from_client = True
        if priority is not None:
            self.flow = self.flow._replace(priority=priority)

    def call(self, raise_if_disconnected: Callable[[], None] = lambda: None) -> Call:
        """Return what the pipeline needs of the request: its id, times, deadline and position in the fair order."""
        return Call(
            *(self.arrival.request_id, self.received_at, self.received_at + self.allowed_s, self.flow),
            traceparent=self.arrival.traceparent,
            repeat_key=self.repeat_key,
            deadline_from_client=self.deadline_from_client,
            on_large=partial(self.service.admission.mark_large, self.admitted_request),
            raise_if_disconnected=raise_if_disconnected,
            on_model=self.arrival.on_model,
            **self._stored_for_key(),
        )

    def _stored_for_key(self) -> dict[str, Any]:
        if self.attempt is None or not self.attempt.result_ids:
            return {}
        return {"result_id": self.attempt.result_ids.__getitem__, "may_share": self.attempt.may_share}

    async def run(self, order: Order) -> Reply:
        """Compute an order's pictures, unless a dead process stored them for it; errors are those of `Pipeline.run`."""
        if self.attempt is not None and self.attempt.earlier is not None:
            reply = self.attempt.earlier
            self.arrival.on_model(reply.model)
        else:
            reply = await self.service.run(order, self.call(self._stop_if_left))
        self.result_ids = tuple(picture.result_id for picture in reply.pictures if picture.result_id)
        return reply

    async def on_codec_thread(self, work: Callable[[], T], pixels: int) -> T:
        """Convert a picture of that many pixels, on the threads that decode pictures."""
        return await self.service.pipeline.codec_work.run_decoding(lambda _: work(), pixels)

    async def run_until_deadline(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` until the deadline, or until the client disconnects.

        Raises:
            DeadlineExceeded: the deadline passed first.
            Cancelled: the client disconnected first.
        """
        self._stop_if_left()
        presence = self.arrival.presence
        return await await_with_deadline(work(), self.left_s, None if presence is None else presence.disconnected)

    def _stop_if_left(self) -> None:
        if self.arrival.presence is not None:
            self.arrival.presence.raise_if_disconnected()

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self.received_at + self.allowed_s - self.service.clock()

    async def run_idempotent(
        self,
        key: str,
        order: Order,
        varies_with: Sequence[str],
        work: Callable[[], Awaitable[StoredResponse]],
        *,
        is_job: bool = False,
    ) -> StoredResponse:
        """Return the response to the first request with an Idempotency-Key; `work` makes it if this is the first.

        Args:
            key: the key, as the client sent it.
            order: the order.
            varies_with: what else the response depends on; a request that differs in it is another request.
            work: makes the response.
            is_job: whether `work` accepts a job, which stores its results under ids of its own.

        Raises:
            InvalidOption: the key is malformed.
            ServiceError: as `Idempotency.run_once`.
        """
        name = key_name(key, self.flow.client, order.task)
        fingerprint = await asyncio.to_thread(fingerprint_of, order, *varies_with)
        self.repeat_key = f"{name}-{fingerprint}"

        stores = order.is_saved(self.service.settings.save) and not is_job

        async def kept_work(attempt: Attempt) -> StoredResponse:
            self.attempt = attempt
            return replace(await self._finish_once_stored(work()), result_ids=self.result_ids)

        results = ResultsToStore(order.options.pictures if stores else 0, self.flow.owner)
        return await self.service.idempotency.run_once(name, fingerprint, kept_work, results)

    async def _finish_once_stored(self, work: Awaitable[StoredResponse]) -> StoredResponse:
        """Await `work`; once its results are stored, it continues without its client, so that repeats find the answer.

        Otherwise repeats would store the results a second time.
        """
        working = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            if not self.result_ids:
                working.cancel()
            return await working
        finally:
            del working  # breaks a reference cycle through its error's traceback


async def receive_in_time(service: Service, reading: Awaitable[T], allowed_s: float = math.inf) -> T:
    """Await the reading of a body, at most until `allowed_s`, `body_timeout_s` or the beginning of the drain.

    Raises:
        UploadTimeout, DeadlineExceeded: the body takes longer than `body_timeout_s`, or than `allowed_s`.
        ShuttingDown: the server drains.
        Cancelled: the client disconnected.
    """
    limit_s = min(allowed_s, service.settings.body_timeout_s)
    try:
        return await await_with_deadline(reading, limit_s, service.drain.begun)
    except DeadlineExceeded:
        if limit_s == allowed_s:
            raise
        raise UploadTimeout(f"the body did not arrive within {limit_s:.0f} s; send it faster") from None
    except Cancelled:
        if service.admission.draining.is_set():
            raise ShuttingDown("the server is shutting down; ask another replica") from None
        raise


@contextmanager
def admitted(
    service: Service,
    arrival: Arrival,
    make: Callable[..., IntakeT],
    default_timeout_s: float | None = None,
) -> Iterator[IntakeT]:
    """Admit a request by the facts that are known before its body is read, for the length of the block.

    Args:
        service: the parts of the server.
        arrival: the request.
        make: makes the intake from the arguments of `Intake`.
        default_timeout_s: seconds until the deadline if the client sets none; None: the setting `request_timeout_s`.

    Raises:
        ShuttingDown, Overloaded, DeadlineExceeded, NotReady: the request cannot be served now. While the server starts,
            loaded models serve, and `NotFound` of a model becomes `NotReady` when the block ends.
    """
    received_at, deadline_from_client = service.clock(), arrival.timeout_s is not None
    allowed_s = arrival.timeout_s or default_timeout_s or service.settings.request_timeout_s
    flow = Flow(arrival.client, arrival.priority)
    with ExitStack() as stack:
        ask = AdmissionRequest(allowed_s, deadline_from_client, flow, arrival.request_id)
        admitted_request = stack.enter_context(service.admission.admit(ask))
        if not service.outage.over and not _has_usable_model(service) and (reasons := service.outage_reasons()):
            raise NotReady("; ".join(reasons))
        loading = not service.backend.loaded.is_set()
        try:
            yield make(arrival, service, admitted_request, stack, received_at, allowed_s, deadline_from_client, flow)
        except NotFound as error:
            if not loading or error.code != "model_not_found":
                raise
            raise NotReady("; ".join(service.outage_reasons()) or "models were loading; try again") from error


def _has_usable_model(service: Service) -> bool:
    return service.backend.ready and any(model.state == "ready" for model in service.models.statuses())
