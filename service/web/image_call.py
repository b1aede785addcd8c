"""One image call, from header to response: it is admitted and read, then answered at once or accepted as a job."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from engines.manifest import Task
from service.app import Service
from service.core.errors import InvalidOption, NotFound
from service.core.order import Order
from service.core.schemas import OPTIONS
from service.jobs.assembly import served_models, webhook_destinations
from service.jobs.job_parts import RETENTION_S
from service.web.form import Form, read_form, refuse_query
from service.web.intake import HttpIntake, Work, admitted
from service.web.request_headers import joined_lines, wanted_form, wanted_format, wants_job
from service.web.responses import image_response, job_response


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
    refuse_query(request.scope["query_string"])
    later = wants_job(joined_lines(request.headers, "prefer"))
    with admitted(request, RETENTION_S if later else None) as intake:
        parts = (*endpoint.required, *endpoint.optional)
        reading = read_form(request, parts, intake.count_bytes, max_body_bytes=intake.max_body_bytes)
        form = await intake.receive_body(reading)
        accept = joined_lines(request.headers, "accept")
        order = _build_order(form, endpoint, accept)
        accepted, preferred = "*/*", "respond-async"
        work: Work = partial(_accept_job, intake, order)
        if not later:
            if order.options.webhook is not None:
                raise InvalidOption("`webhook` is for jobs: send `Prefer: respond-async`", code="webhook_needs_job")
            accepted, preferred = wanted_form(accept, several=order.options.pictures > 1), ""
            work = partial(_compute_response, intake, order, accepted)
        # negotiated values, not header texts: the same wish can be written in several ways
        varies_with = [accepted, preferred, order.options.webhook or "", order.options.webhook_events]
        work = intake.once(order, varies_with, work, is_job=later)
        return await (work() if later else intake.run_until_deadline(work))


async def _compute_response(intake: HttpIntake, order: Order, accept: str) -> Response:
    reply = await intake.run(order)
    return await image_response(reply, intake.request.scope["state"]["request_id"], accept)


async def _accept_job(intake: HttpIntake, order: Order) -> Response:
    service = intake.service
    if not order.is_saved(service.settings.save):
        raise InvalidOption("the result of a job must be saved; send save=true", code="job_needs_save")
    if not service.backend.loaded.is_set() and service.pipeline.model_of(order) not in served_models(service.models):
        raise NotFound("the model is not loaded yet", code="model_not_found", field="model")  # `admitted`: NotReady
    facts = await _webhook_facts(service, order)
    job = await service.jobs.start(order, intake.call(), facts, intake.admission_scope)
    return job_response(job, accepted=True)


async def _webhook_facts(service: Service, order: Order) -> dict[str, Any]:
    """Return the webhook of a job, as it is stored with the job."""
    url, destinations = order.options.webhook, webhook_destinations(service.settings)
    if url is None:
        return {}
    if destinations is None:
        raise InvalidOption(
            "this server sends no webhooks: leave `webhook` out and poll the job, or start it with "
            "--webhook-secret-file",
            code="webhooks_off",
        )
    destinations.check(url)
    await destinations.check_name(url, service.names)
    return {"webhook": url, "webhook_events": order.options.webhook_events.split(",")}


def _build_order(form: Form, endpoint: Endpoint, accept: str) -> Order:
    """Return the order of a form; a missing part is refused here, before a job is accepted."""
    options = form.options(OPTIONS[endpoint.task])
    if options.format is None:
        options = options.model_copy(update={"format": wanted_format(accept)})
    parts = {*endpoint.required, *form.files}
    return Order(endpoint.task, {name: form.file(name) for name in sorted(parts)}, options)
