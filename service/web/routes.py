"""The HTTP routes, which contain no image processing and no decisions."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE

from service.app import Service
from service.core.errors import NotFound
from service.core.schemas import (
    GenerateOptions,
    HealthReply,
    InpaintOptions,
    JobReply,
    ListedModel,
    ModelReply,
    ModelsReply,
    NamedModelReply,
    TranslateOptions,
)
from service.imaging.model_inputs import request_format
from service.lifecycle.default_versions import default_versions
from service.telemetry.redaction import without_folders
from service.web import openapi
from service.web.image_call import Endpoint, image_call
from service.web.request_headers import joined_lines, wants_openmetrics
from service.web.responses import job_response

router = APIRouter()
_OPTIONAL_PARTS = ("instance", "reference")
"""File parts of /v1/translate that only some models accept."""
_Name = Annotated[
    str, Path(description="Name of the model, without a version.", json_schema_extra={"example": "photos"})
]
_Version = Annotated[str, Path(description="Number of the version.", json_schema_extra={"example": "5"})]
_NO_MODEL = openapi.problem_responses(404, 422, codes={404: ("model_not_found",), 422: ("invalid_option",)})
_Id = Annotated[
    str,
    Path(
        description="Id of the job, from its `Location`: 32 hexadecimal digits.",
        json_schema_extra={"example": 32 * "0"},
    ),
]


@router.post(
    "/v1/inpaint",
    summary="Fill a hole",
    tags=["pictures"],
    **openapi.image_route(InpaintOptions, ("image", "mask"), several="samples"),
)
async def inpaint(request: Request) -> Response:
    """Fill the masked part of an image.

    `image` and `mask` have the same size; by default white pixels of the mask are filled. In a PNG result all other
    pixels are bit-identical to those of `image`.
    """
    return await image_call(request, Endpoint("inpaint", ("image", "mask")))


@router.post(
    "/v1/translate",
    summary="Translate an image",
    tags=["pictures"],
    **openapi.image_route(TranslateOptions, ("image",), _OPTIONAL_PARTS, several="samples"),
)
async def translate(request: Request) -> Response:
    """Turn an image into the kind of image that the model was trained to give: a label map into a facade, for instance.

    What `image` is, and whether `instance` or `reference` is needed, depends on the model: `takes` in `GET /v1/models`.
    """
    return await image_call(request, Endpoint("translate", ("image",), _OPTIONAL_PARTS))


@router.post(
    "/v1/generate",
    summary="Generate pictures",
    tags=["pictures"],
    **openapi.image_route(GenerateOptions, (), several="count"),
)
async def generate(request: Request) -> Response:
    """Generate pictures from random numbers. All fields are optional, and the body may be empty."""
    return await image_call(request, Endpoint("generate", ()))


def image_calls() -> list[APIRoute]:
    """Return the routes of the image calls, which read their requests themselves."""
    work = (inpaint, translate, generate)
    return [route for route in router.routes if isinstance(route, APIRoute) and route.endpoint in work]


@router.get(
    "/v1/jobs/{job_id}",
    summary="Get a job",
    tags=["jobs"],
    response_model=JobReply,
    **openapi.uncached_route("The job."),
)
async def get_job(request: Request, job_id: _Id) -> Response:
    """Get the state of a job. A finished job can be fetched for an hour."""
    service: Service = request.state.service
    return job_response(await service.jobs.get(job_id))


@router.delete(
    "/v1/jobs/{job_id}",
    summary="Cancel a job",
    tags=["jobs"],
    response_model=JobReply,
    **openapi.uncached_route("The job, in the state that it has now."),
)
async def cancel_job(request: Request, job_id: _Id) -> Response:
    """Cancel a job that has not finished. Samples whose computation has begun are still computed, but not stored."""
    service: Service = request.state.service
    return job_response(await service.jobs.cancel(job_id))


@router.get(
    "/v1/models", summary="List models", response_description="All models.", tags=["models"], response_model=ModelsReply
)
async def list_models(request: Request) -> ModelsReply:
    """List every version of every model: its state, its manifest, and what a request for it may contain."""
    models = _models(request.state.service)
    usable = {model.name for model in models if model.state != "refused"}
    return ModelsReply(data=[ListedModel(id=name) for name in sorted(usable)], models=models)


@router.get(
    "/v1/models/{name}",
    summary="Get a model",
    response_description="The model.",
    tags=["models"],
    response_model=NamedModelReply,
    responses=_NO_MODEL,
)
async def get_model(request: Request, name: _Name) -> NamedModelReply:
    """Get all versions of a model."""
    return _named_model(request.state.service, name)


@router.get(
    "/v1/models/{name}/{version}",
    summary="Get a version",
    response_description="The version.",
    tags=["models"],
    response_model=NamedModelReply,
    responses=_NO_MODEL,
)
async def get_version(request: Request, name: _Name, version: _Version) -> NamedModelReply:
    """Get one version of a model. Its name, such as `photos/5`, may also come as one part of the path, `photos%2F5`."""
    return _named_model(request.state.service, f"{name}/{version}")


def _named_model(service: Service, name: str) -> NamedModelReply:
    """Return the versions of a model, or the one that is named.

    Raises:
        NotFound: code `model_not_found`; there is none, or all are refused.
    """
    models = [model for model in _models(service) if name in (model.name, f"{model.name}/{model.version}")]
    if all(model.state == "refused" for model in models):
        reasons = "".join(f"; {model.name}/{model.version} is refused: {model.reason}" for model in models)
        raise NotFound(f"no model {name[:80]!r}{reasons}; GET /v1/models lists them", code="model_not_found")
    return NamedModelReply(id=name, models=models)


def _models(service: Service) -> list[ModelReply]:
    """Return every version, by name and newest first."""
    defaults = default_versions(service.settings, service.models.statuses())
    texture = service.pipeline.texture is not None
    return [
        ModelReply(
            name=status.name,
            version=status.version,
            state=status.state,
            reason=without_folders(status.reason) or None,
            engine=f"{status.engine}/{status.precision}" if status.engine else None,
            manifest=status.manifest,
            takes=request_format(status.manifest, texture=texture) if status.manifest else None,
            default=status in defaults,
        )
        for status in service.models.statuses()
    ]


@router.get(
    "/livez",
    summary="Is the process alive?",
    response_description="It is.",
    tags=["operations"],
    response_model=HealthReply,
)
async def livez() -> HealthReply:
    """200 while the process can answer at all. Restart the process if it does not: a liveness probe."""
    return HealthReply(status="ok")


@router.get(
    "/readyz",
    summary="Is the server ready?",
    response_description="It is.",
    tags=["operations"],
    response_model=HealthReply,
    responses={503: {"model": HealthReply, "description": "The server accepts no work now; `reasons` says why."}},
)
async def readyz(request: Request) -> Response:
    """200 while the server accepts work, otherwise 503, for instance while models load: a readiness probe."""
    service: Service = request.state.service
    reasons = service.unready_reasons()
    body = HealthReply(status="unavailable" if reasons else "ok", reasons=reasons)
    return JSONResponse(body.model_dump(), 503 if reasons else 200)


@router.get("/metrics", summary="Get metrics", tags=["operations"], **openapi.metrics_route())
async def metrics(request: Request) -> Response:
    """Get the series for Prometheus, or in OpenMetrics if `Accept` prefers it.

    404 on this port if the server has a port for metrics (`--metrics-port`).
    """
    service: Service = request.state.service
    if service.settings.metrics_port:
        raise NotFound(f"metrics are on port {service.settings.metrics_port}")
    openmetrics = wants_openmetrics(joined_lines(request.headers, "accept"))
    series = await asyncio.to_thread(service.metrics.exposition, openmetrics=openmetrics)
    media_type = OPENMETRICS_TYPE if openmetrics else CONTENT_TYPE_PLAIN_0_0_4
    return Response(series, media_type=media_type)
