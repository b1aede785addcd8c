"""Routes of the Open Inference Protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from engines.repository.versions import ModelStatus
from service.app import Service
from service.compat.json_fields import decoded_bytes, off_loop, parse_fields
from service.compat.open_inference import models
from service.compat.open_inference.bodies import LENGTH_HEADER, json_length, read_body
from service.compat.open_inference.replies import check_output, error_body, infer_body
from service.compat.open_inference.requests import InferRequest, check_inputs, infer_request_of, options_for
from service.compat.open_inference.tensors import as_file
from service.compat.openapi import request_body
from service.compat.options import ignored_header
from service.core.errors import NotReady
from service.core.order import Order
from service.telemetry.redaction import without_folders
from service.web.form import read_up_to_limit
from service.web.intake import Intake, admitted
from service.web.middleware.foreign import ForeignApi
from service.web.responses import reply_headers

router = APIRouter(tags=["open-inference"])
_MOST_INDEX_BYTES = 4096
_MODEL, _VERSION = (
    {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in ("model", "version")
)
_OF_MODEL: dict[str, Any] = {"parameters": [_MODEL]}
_OF_VERSION: dict[str, Any] = {"parameters": [_MODEL, _VERSION]}
_INFER = request_body({"type": "object"})
_ONE, _EACH = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that was read, and its order."""

    request: InferRequest
    order: Order
    ignored: frozenset[str]


@router.get("/v2", name="inference_server")
async def server_metadata() -> Response:
    """Name, version and extensions of the server."""
    extensions = ["binary_tensor_data", "model_configuration", "statistics"]
    return JSONResponse({"name": "retouch", "version": version("retouch"), "extensions": extensions})


@router.get("/v2/health/live", name="inference_live")
async def live() -> Response:
    """200 while the process runs its event loop."""
    return JSONResponse({"live": True})


@router.get("/v2/health/ready", name="inference_ready")
async def ready(request: Request) -> Response:
    """200 when work is taken, otherwise 503."""
    service: Service = request.state.service
    is_ready = not service.unready_reasons()
    return JSONResponse({"live": True, "ready": is_ready}, 200 if is_ready else 503)


@router.post("/v2/repository/index", name="inference_index")
async def index(request: Request) -> Response:
    """Every version of every model, and its state."""
    body = bytearray()
    async for chunk in read_up_to_limit(request, _MOST_INDEX_BYTES):
        body += chunk
    only_ready = parse_fields(body).value("ready", bool, False) if body else False
    found = models.index(_statuses(request), ready=only_ready)
    return JSONResponse([{**one, "reason": without_folders(one["reason"])} for one in found])


@router.get("/v2/models/stats", name="inference_all_statistics")
async def all_statistics(request: Request) -> Response:
    """Statistics of all models."""
    return await _statistics(request, _statuses(request))


@router.get(f"{_ONE}/stats", name="inference_model_statistics", openapi_extra=_OF_MODEL)
@router.get(f"{_EACH}/stats", name="inference_statistics", openapi_extra=_OF_VERSION)
async def statistics(request: Request) -> Response:
    """Statistics of a model, over all APIs of the server."""
    return await _statistics(request, [_requested_model(request)])


@router.get(_ONE, name="inference_model", openapi_extra=_OF_MODEL)
@router.get(_EACH, name="inference_version", openapi_extra=_OF_VERSION)
async def model_metadata(request: Request) -> Response:
    """Inputs and outputs of a model."""
    return JSONResponse(models.metadata(_requested_model(request), _statuses(request)))


@router.get(f"{_ONE}/config", name="inference_model_config", openapi_extra=_OF_MODEL)
@router.get(f"{_EACH}/config", name="inference_config", openapi_extra=_OF_VERSION)
async def model_config(request: Request) -> Response:
    """The configuration of a model."""
    return JSONResponse(models.config(_requested_model(request)))


@router.get(f"{_ONE}/ready", name="inference_model_ready", openapi_extra=_OF_MODEL)
@router.get(f"{_EACH}/ready", name="inference_version_ready", openapi_extra=_OF_VERSION)
async def model_ready(request: Request) -> Response:
    """200 if the model can be used, otherwise 503."""
    status = _requested_model(request)
    if status.state == "refused":
        raise NotReady(f"{status.name}/{status.version}: {without_folders(status.reason)}", code="model_refused")
    return JSONResponse({"name": status.name, "ready": True})


@router.post(f"{_ONE}/infer", name="inference_infer", response_class=Response, openapi_extra={**_OF_MODEL, **_INFER})
@router.post(
    f"{_EACH}/infer", name="inference_infer_version", response_class=Response, openapi_extra={**_OF_VERSION, **_INFER}
)
async def infer(request: Request) -> Response:
    """Compute pictures: of `image` and `mask`, of what else the model takes, or of nothing."""
    with admitted(request) as intake:
        asked = await intake.arrived(_read(intake))
        intake.take_wishes(asked.request.timeout_s, asked.request.priority)
        form = ("open-inference", str(asked.request.binary_output), str(asked.request.as_pixels), asked.request.id)
        return await intake.answered(intake.once(asked.order, form, partial(_respond, intake, asked)))


async def _read(intake: Intake) -> _Asked:
    request = await _parsed(intake)
    check_output(request)
    status = _requested_model(intake.request)
    if status.manifest is None:
        raise NotReady(f"{status.name}/{status.version}: {without_folders(status.reason)}", code="model_refused")
    check_inputs(request.tensors, models.inputs_of(status.manifest), status.name)
    options, ignored = options_for(status.manifest, _reference(intake.request), request)
    files = {}
    for tensor in request.tensors:
        intake.count_bytes(2 * len(tensor.data) if tensor.pixels else 0)
        files[tensor.name] = await intake.on_codec_thread(partial(as_file, tensor), tensor.pixels)
    return _Asked(request, Order(status.manifest.task, files, options), ignored)


async def _parsed(intake: Intake) -> InferRequest:
    body = await read_body(intake)
    length, max_pixels = json_length(intake, body), intake.service.settings.max_pixels
    intake.count_bytes(len(body) if length < len(body) else 0)  # both parts are copied
    head = body[:length] if length < len(body) else body
    intake.count_bytes(decoded_bytes(head))
    return await off_loop(len(body), lambda: infer_request_of(head, memoryview(body)[length:], max_pixels))


async def _respond(intake: Intake, asked: _Asked) -> Response:
    reply = await intake.run(asked.order)
    pixels = reply.size.height * reply.size.width
    if asked.request.as_pixels:
        intake.count_bytes(4 * pixels * len(reply.pictures))
    making = partial(infer_body, reply, asked.request, intake.service.settings.max_pixels)
    body, length = await intake.on_codec_thread(making, pixels if asked.request.as_pixels else 0)
    headers = {**reply_headers(reply), **ignored_header(set(asked.ignored))}
    if length is None:
        return Response(body, media_type="application/json", headers=headers)
    return Response(body, media_type="application/octet-stream", headers={**headers, LENGTH_HEADER: str(length)})


async def _statistics(request: Request, statuses: Sequence[ModelStatus]) -> Response:
    service: Service = request.state.service
    exposition = await asyncio.to_thread(service.metrics.exposition)
    return JSONResponse(models.statistics(exposition.decode("utf-8"), statuses))


def _statuses(request: Request) -> Sequence[ModelStatus]:
    service: Service = request.state.service
    return service.models.statuses()


def _requested_model(request: Request) -> ModelStatus:
    return models.found(_statuses(request), request.path_params["model"], request.path_params.get("version", ""))


def _reference(request: Request) -> str:
    """Return the model of a request's path, as `name` or `name/version`."""
    return "/".join(filter(None, (request.path_params["model"], request.path_params.get("version"))))


OPEN_INFERENCE = ForeignApi(
    "open-inference",
    "Open Inference Protocol v2 (KServe, Triton) over HTTP, with binary tensors",
    router,
    "/v2",
    error_body,
    public=frozenset({"/v2/health/live", "/v2/health/ready"}),
    idle_posts=frozenset({"/v2/repository/index"}),
)
"""The API as the application serves it; docs/compatible_apis.md says what differs from Triton's."""
