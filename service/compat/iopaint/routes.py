"""Routes of IOPaint's API."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from service.app import Service
from service.compat.error_body import error_body
from service.compat.iopaint.descriptions import model_info, server_config
from service.compat.iopaint.requests import InpaintRequest, parse_inpaint
from service.compat.json_fields import read_json
from service.core.errors import InvalidOption
from service.imaging.files.codec import MEDIA_TYPES, measure_brightness
from service.imaging.files.decode_cost import decoded_bytes
from service.imaging.files.header import read_header
from service.intake.large_bodies import off_loop
from service.intake.options import check_same_model, ignored_header
from service.web.foreign_api import NO_FIELD_FOR_IT, ForeignApi, request_body
from service.web.form import read_up_to_limit
from service.web.intake import HttpIntake, admitted
from service.web.responses import reply_headers

router = APIRouter(tags=["iopaint"])
_BASE64 = {"type": "string", "description": "A JPEG, PNG or WebP in base64, or as a data URL."}
_INPAINT_BODY = {"type": "object", "properties": {"image": _BASE64, "mask": _BASE64}, "required": ["image", "mask"]}
_INFO_BODY = {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}


@router.post(
    "/api/v1/inpaint",
    name="iopaint_inpaint",
    summary="Fill a hole",
    response_class=Response,
    responses={200: {"description": "The picture, in the format of the upload."}},
    openapi_extra=request_body(_INPAINT_BODY),
)
async def inpaint(request: Request) -> Response:
    """Fill the white part of the mask. With a black mask the reply is the upload, unchanged."""
    with admitted(request) as intake:
        asked = await intake.receive_body(_read(intake))
        work = partial(_respond, intake, asked)
        return await intake.run_until_deadline(intake.once(asked.order, ("iopaint", str(asked.seed)), work))


@router.get("/api/v1/server-config", name="iopaint_config", summary="Get the configuration")
async def config(request: Request) -> Response:
    """Get what IOPaint's page reads when it starts."""
    service: Service = request.state.service
    return JSONResponse(server_config(service.models.statuses(), service.settings.inpaint_model))


@router.get("/api/v1/model", name="iopaint_model", summary="Get the model")
async def current_model(request: Request) -> Response:
    """Get the model that fills holes."""
    service: Service = request.state.service
    return JSONResponse(model_info(service.settings.inpaint_model))


@router.post(
    "/api/v1/model",
    name="iopaint_switch",
    summary="Choose a model",
    openapi_extra=request_body({"type": "object"}),
)
async def switch_model(request: Request) -> Response:
    """Get the model that fills holes. Another one is refused, because it would change for all clients."""
    service: Service = request.state.service
    with admitted(request) as intake:
        fields = await intake.receive_body(read_json(intake))
    current = service.settings.inpaint_model
    check_same_model(fields.value("name", str, current), current, "cannot be chosen")
    return JSONResponse(model_info(current))


@router.get("/api/v1/samplers", name="iopaint_samplers", summary="List samplers")
async def samplers() -> Response:
    """Get an empty list: no model here uses a sampler."""
    return JSONResponse([])


@router.post(
    "/api/v1/gen-info",
    name="iopaint_info",
    summary="Get the prompts of a picture",
    openapi_extra=request_body(_INFO_BODY, "multipart/form-data"),
)
async def gen_info(request: Request) -> Response:
    """Get empty prompts: no model here uses any. The upload is discarded as it arrives."""
    with admitted(request) as intake:
        await intake.receive_body(_drop(intake))
    return JSONResponse({"prompt": "", "negative_prompt": ""})


async def _drop(intake: HttpIntake) -> None:
    async for _ in read_up_to_limit(intake.request, intake.max_body_bytes):
        pass


async def _read(intake: HttpIntake) -> InpaintRequest:
    fields = await read_json(intake)
    max_pixels = intake.service.settings.max_pixels
    return await off_loop(intake.admitted_request.body_bytes, lambda: parse_inpaint(fields, max_pixels))


async def _respond(intake: HttpIntake, asked: InpaintRequest) -> Response:
    ignored = ignored_header(set(asked.ignored))
    try:
        reply = await intake.run(asked.order)
    except InvalidOption as error:
        if error.code != "mask_empty" or not await _is_black(intake, asked.order.files["mask"]):
            raise
        media_type = MEDIA_TYPES[asked.order.format]
        return Response(asked.order.files["image"], media_type=media_type, headers={"X-Seed": "0", **ignored})
    headers = {"X-Seed": str(asked.seed), **reply_headers(reply), **ignored}
    return Response(reply.pictures[0].body, media_type=reply.media_type, headers=headers)


async def _is_black(intake: HttpIntake, mask: bytes) -> bool:
    """Return whether a mask that selects nothing has one value, as a page's empty canvas does.

    One with a shape in dark values, such as 0 and 1, was meant to select something.
    """
    max_pixels = intake.service.settings.max_pixels
    header = read_header(mask, max_pixels=max_pixels)
    intake.count_bytes(2 * decoded_bytes(header, len(mask)))
    measure = partial(measure_brightness, mask, max_pixels=max_pixels, header=header)
    values = await intake.on_codec_thread(measure, header.size.height * header.size.width)
    return values.darkest == values.brightest


IOPAINT = ForeignApi(
    "iopaint",
    "IOPaint's API: image and mask in base64, the reply is the picture.",
    router,
    "/api/v1",
    error_body,
    {
        **NO_FIELD_FOR_IT,
        "mask_full": "make black what is to be kept: white is filled",
        "model_required": "this API has no field for a model, so the server's operator must set a default",
    },
    idle_posts=frozenset({"/api/v1/model", "/api/v1/gen-info"}),
)
"""The API as the application serves it; docs/compatible_apis.md says what differs from IOPaint's."""
