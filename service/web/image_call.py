"""One image call from header to response: admitted, read, then answered now or accepted as a job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from engines.manifest import Task
from service.admission.admission import AdmissionRequest
from service.admission.deadline import answer
from service.app import Service
from service.core.call import Call
from service.core.errors import Cancelled, DeadlineExceeded, InvalidOption, NotReady, ShuttingDown, UploadTimeout
from service.core.flow import Flow
from service.core.order import Order
from service.core.schemas import OPTIONS
from service.jobs.assembly import destinations_of
from service.jobs.jobs import KEPT_S
from service.repeats.idempotency import fingerprint_of, key_name
from service.repeats.response_files import KeptResponse
from service.web.form import Form, read_form, refuse_query
from service.web.request_headers import asked_priority, asked_timeout_s, joined, single, wanted_format, wants_job
from service.web.responses import from_kept, image_response, job_response, to_kept

Work = Callable[[], Coroutine[Any, Any, Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A task, and the required and optional file parts of its requests."""

    task: Task
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


async def image_call(request: Request, endpoint: Endpoint) -> Response:
    """Answer a request for pictures.

    Raises:
        ServiceError, Cancelled: the request cannot be answered, or its client disconnected.
    """
    service: Service = request.state.service
    settings, received_at = service.settings, service.clock()
    refuse_query(request.scope["query_string"])
    later = wants_job(joined(request.headers, "prefer"))
    asked_s = asked_timeout_s(single(request.headers, "X-Request-Timeout-Ms"))
    allowed_s = asked_s or (KEPT_S if later else settings.request_timeout_s)
    flow = Flow(request.state.client.id, asked_priority(single(request.headers, "X-Priority")))
    job_id = request.scope["state"].get("job_id")
    if later and job_id is not None and (known := await service.jobs.known(job_id)) is not None:
        return job_response(known, accepted=True)  # whoever took it on was lost before it could say so
    with ExitStack() as admitted:
        ask = AdmissionRequest(allowed_s, asked_s is not None, flow, request.state.request_id)
        place = admitted.enter_context(service.admission.admit(ask))
        if not service.outage.over and (reasons := service.outage_reasons()):
            raise NotReady("; ".join(reasons))
        form = await _read_form(request, endpoint, allowed_s, partial(service.admission.count_body_bytes, place))
        service.admission.count_in_flight(place)
        order = _order(form, endpoint, joined(request.headers, "accept"))
        call = Call(
            *(request.state.request_id, received_at, received_at + allowed_s, flow),
            traceparent=request.scope["state"].get("traceparent", ""),
            own_deadline=asked_s is not None,
            on_large=partial(service.admission.mark_large, place),
        )
        work: Work = partial(_reply, request, order, call)
        if later:
            work = partial(_accept_job, service, order, call, admitted, job_id)
        elif order.options.webhook is not None:
            raise InvalidOption("`webhook` is for jobs: send `Prefer: respond-async`", code="webhook_needs_job")
        if (key := single(request.headers, "Idempotency-Key")) is not None:
            work = partial(_once, request, order, key, work)
        if later:
            return await work()
        left_s, gone = call.deadline - service.clock(), request.scope["state"].get("gone")
        return await answer(work(), left_s, gone)


async def _once(request: Request, order: Order, key: str, work: Work) -> Response:
    """Return the response of `work`, or that of an earlier request with the same Idempotency-Key."""
    service: Service = request.state.service
    name = key_name(key, request.state.client.id, order.task)
    wishes = (joined(request.headers, header) for header in ("accept", "prefer"))
    told = (order.options.webhook or "", order.options.webhook_events)
    fingerprint = await asyncio.to_thread(fingerprint_of, order, *wishes, *told)

    async def kept_work() -> KeptResponse:
        kept = to_kept(await work())
        return replace(kept, result_ids=request.scope["state"].get("result_ids", ()))

    return from_kept(await service.idempotency.once(name, fingerprint, kept_work))


async def _reply(request: Request, order: Order, call: Call) -> Response:
    service: Service = request.state.service
    reply = await service.run(order, call)
    request.state.result_ids = tuple(picture.result_id for picture in reply.pictures if picture.result_id)
    return image_response(reply, call.request_id, joined(request.headers, "accept"))


async def _accept_job(service: Service, order: Order, call: Call, admitted: ExitStack, job_id: str | None) -> Response:
    if not order.is_saved(service.settings.save):
        raise InvalidOption("an asynchronous request must be saved; leave out save=false", code="job_needs_save")
    job = await service.jobs.start(order, call, await _webhook(service, order), admitted, job_id)
    return job_response(job, accepted=True)


async def _webhook(service: Service, order: Order) -> dict[str, Any]:
    """Return the webhook of a job, as it is stored with the job."""
    url, destinations = order.options.webhook, destinations_of(service.settings)
    if url is None:
        return {}
    if destinations is None:
        raise InvalidOption("this server sends no webhooks: it has no webhook_secret_file", code="webhooks_off")
    destinations.check(url)
    await destinations.check_name(url, service.names)
    return {"webhook": url, "webhook_events": order.options.webhook_events.split(",")}


def _order(form: Form, endpoint: Endpoint, accept: str) -> Order:
    """Return the order of a form; a missing part is refused here, not later by the job."""
    options = form.options(OPTIONS[endpoint.task])
    if options.format is None:
        options = options.model_copy(update={"format": wanted_format(accept)})
    parts = {*endpoint.required, *form.files}
    return Order(endpoint.task, {name: form.file(name) for name in sorted(parts)}, options)


async def _read_form(request: Request, endpoint: Endpoint, allowed_s: float, hold: Callable[[int], None]) -> Form:
    """Read the body while the client is connected, the server accepts work and the time for the body lasts."""
    service: Service = request.state.service
    limit_s = min(allowed_s, service.settings.body_timeout_s)
    max_body_bytes = int(service.settings.max_body_mb * 2**20)
    reading = read_form(request, (*endpoint.required, *endpoint.optional), hold, max_body_bytes=max_body_bytes)
    try:
        return await answer(reading, limit_s, service.drain.begun)
    except DeadlineExceeded:
        if limit_s == allowed_s:
            raise
        raise UploadTimeout(f"the body did not arrive within {limit_s:.0f} s; send it faster") from None
    except Cancelled:
        if service.admission.draining.is_set():
            raise ShuttingDown("the server is shutting down; ask another replica") from None
        raise
