"""Routes of the Open Inference Protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from engines.repository.versions import ModelStatus
from service.app import Service
from service.compat.json_fields import JSON_TYPE, count_decoded, parse_fields
from service.compat.open_inference.bodies import LENGTH_HEADER, json_length, read_body
from service.compat.open_inference.replies import check_output, error_body, infer_body
from service.compat.open_inference.requests import parse_infer_request
from service.intake.intake import receive_in_time
from service.intake.large_bodies import off_loop
from service.intake.options import ignored_header
from service.open_inference import models
from service.open_inference.orders import InferOrder, compute_reply, order_of, refused_error, write_reply
from service.open_inference.requests import InferRequest
from service.web.foreign_api import ForeignApi, request_body
from service.web.form import read_up_to_limit
from service.web.intake import HttpIntake, admitted
from service.web.responses import reply_headers

router = APIRouter(tags=["open-inference"])
_MAX_INDEX_BYTES = 4096
_MODEL, _VERSION = (
    {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": description}
    for name, description in (("model", "Name of the model."), ("version", "Number of the version."))
)
_MODEL_PARAMETERS: dict[str, Any] = {"parameters": [_MODEL]}
_VERSION_PARAMETERS: dict[str, Any] = {"parameters": [_MODEL, _VERSION]}
_INFER = request_body({"type": "object"})
_MODEL_PATH, _VERSION_PATH = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"


@router.get("/v2", name="inference_server", summary="Get the server")
async def server_metadata() -> Response:
    """Get the server's name, its version and the extensions of the protocol that it has."""
    return JSONResponse(models.server_metadata("binary_tensor_data"))


@router.get("/v2/health/live", name="inference_live", summary="Is the process alive?")
async def live() -> Response:
    """200 while the process can answer at all: a liveness probe."""
    return JSONResponse({"live": True})


@router.get("/v2/health/ready", name="inference_ready", summary="Is the server ready?")
async def ready(request: Request) -> Response:
    """200 while the server accepts work, otherwise 503: a readiness probe."""
    service: Service = request.state.service
    is_ready = not service.unready_reasons()
    return JSONResponse({"live": True, "ready": is_ready}, 200 if is_ready else 503)


@router.post("/v2/repository/index", name="inference_index", summary="List models")
async def index(request: Request) -> Response:
    """List every version of every model with its state; with `{"ready": true}` only those that can be used."""
    service: Service = request.state.service
    body = await receive_in_time(service, _read_filter(request))
    only_ready = parse_fields(body).value("ready", bool, False) if body else False
    return JSONResponse(models.index(service.models.statuses(), ready=only_ready))


@router.get("/v2/models/stats", name="inference_all_statistics", summary="Get statistics of all models")
async def all_statistics(request: Request) -> Response:
    """Get the counts and durations of requests for every model, over all APIs of this server."""
    return await _statistics(request, _statuses(request))


@router.get(
    f"{_MODEL_PATH}/stats",
    name="inference_model_statistics",
    summary="Get statistics of a model",
    openapi_extra=_MODEL_PARAMETERS,
)
@router.get(
    f"{_VERSION_PATH}/stats",
    name="inference_statistics",
    summary="Get statistics of a version",
    openapi_extra=_VERSION_PARAMETERS,
)
async def statistics(request: Request) -> Response:
    """Get the counts and durations of requests for a model, over all APIs of this server."""
    return await _statistics(request, [_requested_model(request)])


@router.get(_MODEL_PATH, name="inference_model", summary="Get a model", openapi_extra=_MODEL_PARAMETERS)
@router.get(_VERSION_PATH, name="inference_version", summary="Get a version", openapi_extra=_VERSION_PARAMETERS)
async def model_metadata(request: Request) -> Response:
    """Get the names, types and shapes of the model's inputs and outputs."""
    return JSONResponse(models.metadata(_requested_model(request), _statuses(request)))


@router.get(
    f"{_MODEL_PATH}/config",
    name="inference_model_config",
    summary="Get a model's configuration",
    openapi_extra=_MODEL_PARAMETERS,
)
@router.get(
    f"{_VERSION_PATH}/config",
    name="inference_config",
    summary="Get a version's configuration",
    openapi_extra=_VERSION_PARAMETERS,
)
async def model_config(request: Request) -> Response:
    """Get the model's configuration as Triton describes it. `max_batch_size` is 0: the server itself batches."""
    return JSONResponse(models.config(_requested_model(request)))


@router.get(
    f"{_MODEL_PATH}/ready", name="inference_model_ready", summary="Is a model ready?", openapi_extra=_MODEL_PARAMETERS
)
@router.get(
    f"{_VERSION_PATH}/ready",
    name="inference_version_ready",
    summary="Is a version ready?",
    openapi_extra=_VERSION_PARAMETERS,
)
async def model_ready(request: Request) -> Response:
    """200 if the model can be used, otherwise 503 with the reason."""
    status = _requested_model(request)
    if status.state == "refused":
        raise refused_error(status)
    return JSONResponse({"name": status.name, "ready": True})


@router.post(
    f"{_MODEL_PATH}/infer",
    name="inference_infer",
    summary="Compute with a model",
    response_class=Response,
    openapi_extra={**_MODEL_PARAMETERS, **_INFER},
)
@router.post(
    f"{_VERSION_PATH}/infer",
    name="inference_infer_version",
    summary="Compute with a version",
    response_class=Response,
    openapi_extra={**_VERSION_PARAMETERS, **_INFER},
)
async def infer(request: Request) -> Response:
    """Compute pictures from the inputs of the model: `image` and `mask`, others, or none.

    An input is an encoded file (BYTES), as binary data after the JSON or in base64, or pixels (UINT8), as binary data.
    The output has the same form.
    """
    with admitted(request) as intake:
        asked = await intake.receive_body(_read(intake))
        intake.take_timeout_and_priority(asked.request.timeout_s, asked.request.priority)
        work = intake.once(asked.order, asked.varies_with("open-inference"), partial(_respond, intake, asked))
        return await intake.run_until_deadline(work)


async def _read(intake: HttpIntake) -> InferOrder:
    request = await _parsed(intake)
    check_output(request)
    return await order_of(intake, request, *_named_model(intake.request))


async def _parsed(intake: HttpIntake) -> InferRequest:
    body = await read_body(intake)
    length, max_pixels = json_length(intake, body), intake.service.settings.max_pixels
    intake.count_bytes(len(body) if length < len(body) else 0)  # both parts are copied
    head = body[:length] if length < len(body) else body
    await count_decoded(intake, head)
    return await off_loop(len(body), lambda: parse_infer_request(head, memoryview(body)[length:], max_pixels))


async def _respond(intake: HttpIntake, asked: InferOrder) -> Response:
    reply, pixels = await compute_reply(intake, asked)
    making = partial(infer_body, reply, asked.request, intake.service.settings.max_pixels)
    body, length = await write_reply(intake, reply, pixels, making)
    headers = {**reply_headers(reply), **ignored_header(set(asked.ignored))}
    if length is None:
        return Response(body, media_type=JSON_TYPE, headers=headers)
    return Response(body, media_type="application/octet-stream", headers={**headers, LENGTH_HEADER: str(length)})


async def _read_filter(request: Request) -> bytes:
    return b"".join([chunk async for chunk in read_up_to_limit(request, _MAX_INDEX_BYTES)])


async def _statistics(request: Request, statuses: Sequence[ModelStatus]) -> Response:
    service: Service = request.state.service
    return JSONResponse(models.statistics(await asyncio.to_thread(service.metrics.exposition), statuses))


def _statuses(request: Request) -> Sequence[ModelStatus]:
    service: Service = request.state.service
    return service.models.statuses()


def _requested_model(request: Request) -> ModelStatus:
    return models.find_status(_statuses(request), *_named_model(request))


def _named_model(request: Request) -> tuple[str, str]:
    """Return name and version of the model in a request's path; the version is empty if none is named."""
    return request.path_params["model"], request.path_params.get("version", "")


OPEN_INFERENCE = ForeignApi(
    "open-inference",
    "Open Inference Protocol v2, of KServe and Triton, over HTTP, with binary tensors.",
    router,
    "/v2",
    error_body,
    public=frozenset({"/v2/health/live", "/v2/health/ready"}),
    idle_posts=frozenset({"/v2/repository/index"}),
)
"""The API as the application serves it; docs/compatible_apis.md says what differs from Triton's."""
