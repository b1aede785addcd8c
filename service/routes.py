"""The HTTP contract: from request to pipeline and back. No image work and no decisions here."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from service import openapi
from service.admission import Ask
from service.app import Service
from service.calls import answer
from service.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidOption,
    NotFound,
    NotReady,
    ShuttingDown,
    UploadTimeout,
)
from service.fairness import Flow
from service.items import Call, Reply
from service.jobs import Job
from service.negotiation import asked_priority, asked_timeout_s, joined, matches, wanted_format, wants_job, wants_json
from service.pipeline import Pipeline
from service.replies import image_response, job_response, result_url
from service.schemas import (
    GenerateOptions,
    HealthReply,
    InpaintOptions,
    JobReply,
    ModelReply,
    ModelsReply,
    TranslateOptions,
)
from service.takes import takes
from service.uploads import Form, read_form

router = APIRouter()
_OF_SOME_MODELS = ("instance", "reference")
"""File parts of /v1/translate that only some models take."""

Run = Callable[[Pipeline, Form, Any, Call], Coroutine[Any, Any, Reply]]


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """What a call takes, and the pipeline's part in it."""

    options: type[InpaintOptions | TranslateOptions | GenerateOptions]
    required: tuple[str, ...]
    optional: tuple[str, ...]
    run: Run


@router.post("/v1/inpaint", **openapi.image_call(InpaintOptions, ("image", "mask"), several="samples"))
async def inpaint(request: Request) -> Response:
    """Fill the masked part of an image; pixels outside the mask come back bit-identical (PNG)."""

    async def run(pipeline: Pipeline, form: Form, options: InpaintOptions, call: Call) -> Reply:
        return await pipeline.inpaint(form.file("image"), form.file("mask"), options, call)

    return await _image_call(request, _Endpoint(InpaintOptions, ("image", "mask"), (), run))


@router.post("/v1/translate", **openapi.image_call(TranslateOptions, ("image",), _OF_SOME_MODELS))
async def translate(request: Request) -> Response:
    """Turn an image into the model's other domain, or a label map into a picture."""

    async def run(pipeline: Pipeline, form: Form, options: TranslateOptions, call: Call) -> Reply:
        others = {name: form.file(name) for name in _OF_SOME_MODELS if name in form.files}
        return await pipeline.translate(form.file("image"), options, call, others)

    return await _image_call(request, _Endpoint(TranslateOptions, ("image",), _OF_SOME_MODELS, run))


@router.post("/v1/generate", **openapi.image_call(GenerateOptions, (), several="count"))
async def generate(request: Request) -> Response:
    """Make pictures from random numbers alone; the body may be empty."""

    async def run(pipeline: Pipeline, _form: Form, options: GenerateOptions, call: Call) -> Reply:
        return await pipeline.generate(options, call)

    return await _image_call(request, _Endpoint(GenerateOptions, (), (), run))


def image_calls() -> list[APIRoute]:
    """The routes that take work: they read the request themselves and need nothing else."""
    work = (inpaint, translate, generate)
    return [route for route in router.routes if isinstance(route, APIRoute) and route.endpoint in work]


async def _image_call(request: Request, endpoint: _Endpoint) -> Response:
    service: Service = request.state.service
    settings, received_at = service.settings, service.clock()
    accept, later = joined(request.headers, "accept"), wants_job(joined(request.headers, "prefer"))
    asked_s = asked_timeout_s(request.headers.get("x-request-timeout-ms"))
    allowed_s = asked_s or (settings.job_ttl_s if later else settings.request_timeout_s)
    flow = Flow(request.state.client.id, asked_priority(request.headers.get("x-priority")))
    with ExitStack() as house:
        ask = Ask(allowed_s, asked_s is not None, flow, request.state.request_id)
        place = house.enter_context(service.admission.admit(ask))
        if not service.outage.over and (reasons := service.unready_reasons()):
            raise NotReady("; ".join(reasons))
        form = await _read_form(request, endpoint, allowed_s)
        service.admission.arrive(place)
        options = form.options(endpoint.options)
        if options.format is None:
            options = options.model_copy(update={"format": wanted_format(accept)})
        for name in endpoint.required:
            form.file(name)  # a missing part is refused now, not by the job
        call = Call(request.state.request_id, received_at, received_at + allowed_s, flow)
        if later:
            work = partial(endpoint.run, service.pipeline, form, options)
            return _start_job(service, options, work, call, house)
        left_s, gone = call.deadline - service.clock(), request.scope["state"].get("gone")
        reply = await answer(endpoint.run(service.pipeline, form, options, call), left_s, gone)
    return image_response(reply, call.request_id, accept)


async def _read_form(request: Request, endpoint: _Endpoint, allowed_s: float) -> Form:
    """The body, as long as somebody waits for the answer, the server takes work, and it comes in reasonable time."""
    service: Service = request.state.service
    limit_s = min(allowed_s, service.settings.body_timeout_s)
    max_body_bytes = int(service.settings.max_body_mb * 2**20)
    reading = read_form(request, (*endpoint.required, *endpoint.optional), max_body_bytes=max_body_bytes)
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


def _start_job(
    service: Service,
    options: InpaintOptions | TranslateOptions | GenerateOptions,
    work: Callable[[Call], Coroutine[Any, Any, Reply]],
    call: Call,
    house: ExitStack,
) -> Response:
    save = service.settings.save if options.save is None else options.save
    if not save:
        raise InvalidOption("an asynchronous request must be saved; leave out save=false", code="job_needs_save")

    async def run(job: Job) -> list[str]:
        begun = replace(call, on_begun=job.begin)
        reply = await answer(work(begun), call.deadline - service.clock())
        return [url for picture in reply.pictures if (url := result_url(picture))]

    job = service.jobs.start(run, call.request_id)
    place = house.pop_all()  # the job keeps the request's place until it ends, even if it is cancelled unbegun
    if job.task is not None:
        job.task.add_done_callback(lambda _: place.close())
    return job_response(job, accepted=True)


@router.get("/v1/jobs/{job_id}", response_model=JobReply, responses=openapi.problems(404))
async def get_job(request: Request, job_id: str) -> Response:
    """The state of an asynchronous request."""
    service: Service = request.state.service
    return job_response(service.jobs.get(job_id))


@router.delete("/v1/jobs/{job_id}", response_model=JobReply, responses=openapi.problems(404))
async def cancel_job(request: Request, job_id: str) -> Response:
    """Cancel an asynchronous request; what has not begun is not computed."""
    service: Service = request.state.service
    return job_response(service.jobs.cancel(job_id))


@router.head("/v1/results/{result_id}", include_in_schema=False)
@router.get("/v1/results/{result_id}", **openapi.stored_result())
async def get_result(request: Request, result_id: str = Path(description="32 hexadecimal digits")) -> Response:
    """A stored image; its JSON sidecar with `Accept: application/json`."""
    service: Service = request.state.service
    as_json = wants_json(joined(request.headers, "accept"))
    etag = f'"{result_id}{".json" if as_json else ""}"'  # a result never changes: its id says which bytes it is
    headers = {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept", "ETag": etag}
    unchanged = matches(joined(request.headers, "if-none-match"), etag)
    if as_json or unchanged:
        if (sidecar := await service.results.sidecar(result_id)) is not None:
            return Response(status_code=304, headers=headers) if unchanged else JSONResponse(sidecar, headers=headers)
    elif (found := await service.results.image(result_id)) is not None:
        body, media_type = found
        return Response(body, media_type=media_type, headers=headers)
    raise NotFound(f"no result {result_id[:80]!r}")


@router.get("/v1/models", response_model=ModelsReply)
async def get_models(request: Request) -> ModelsReply:
    """Every model version of the repository, with its manifest and what it takes."""
    service: Service = request.state.service
    return ModelsReply(
        models=[
            ModelReply(
                name=status.name,
                version=status.version,
                state=status.state,
                reason=status.reason or None,
                engine=f"{status.engine}/{status.precision}" if status.engine else None,
                manifest=status.manifest,
                takes=takes(status.manifest) if status.manifest else None,
            )
            for status in service.models.statuses()
        ]
    )


@router.head("/livez", include_in_schema=False)
@router.get("/livez", response_model=HealthReply)
async def livez() -> HealthReply:
    """200 while the process runs its event loop."""
    return HealthReply(status="ok")


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", response_model=HealthReply, responses={503: {"model": HealthReply}})
async def readyz(request: Request) -> Response:
    """200 when work is taken; 503 with the reasons otherwise: loading, draining, worker lost."""
    service: Service = request.state.service
    reasons = service.unready_reasons()
    body = HealthReply(status="unavailable" if reasons else "ok", reasons=reasons)
    return JSONResponse(body.model_dump(), 503 if reasons else 200)


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus series; not here when they have a port of their own."""
    service: Service = request.state.service
    if service.settings.metrics_port:
        raise NotFound(f"metrics are on port {service.settings.metrics_port}")
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)
