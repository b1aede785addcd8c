"""Routes of AUTOMATIC1111's API."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from service.app import Service
from service.compat.automatic1111.drawn_masks import may_be_drawn, white_where_drawn
from service.compat.automatic1111.replies import idle_progress, img2img_json, models_json, scaled
from service.compat.automatic1111.requests import Img2ImgRequest, parse_img2img
from service.compat.error_body import error_body
from service.compat.json_fields import JSON_TYPE, read_json
from service.core.errors import InvalidImage, TooLarge, UnsupportedType
from service.core.order import Order
from service.imaging.files.decode_cost import decoded_bytes
from service.imaging.files.header import read_header
from service.intake.large_bodies import off_loop
from service.intake.options import check_same_model, ignored_header
from service.intake.written_bodies import json_body
from service.web.foreign_api import NO_FIELD_FOR_IT, ForeignApi, request_body
from service.web.intake import HttpIntake, admitted
from service.web.responses import reply_headers

router = APIRouter(tags=["automatic1111"])
_BASE64 = {"type": "string", "description": "A JPEG, PNG or WebP in base64."}
_BODY: dict[str, Any] = {
    "type": "object",
    "properties": {"init_images": {"type": "array", "items": _BASE64}, "mask": _BASE64},
    "required": ["init_images", "mask"],
}


@router.post("/sdapi/v1/img2img", name="automatic_fill", summary="Fill a hole", openapi_extra=request_body(_BODY))
async def img2img(request: Request) -> Response:
    """Fill the white part of the mask, or the black part with `inpainting_mask_invert`.

    The results are PNG files in base64, scaled to `width` × `height` if both are sent.
    """
    with admitted(request) as intake:
        asked = await intake.receive_body(_read(intake))
        work = partial(_respond, intake, asked)
        return await intake.run_until_deadline(intake.once(asked.order, ("automatic1111", str(asked.size)), work))


@router.get("/sdapi/v1/options", name="automatic_options", summary="Get the options")
async def options(request: Request) -> Response:
    """Get the model that is used if a request names none, and the format of results."""
    service: Service = request.state.service
    return JSONResponse({"sd_model_checkpoint": service.settings.inpaint_model, "samples_format": "png"})


@router.post(
    "/sdapi/v1/options", name="automatic_choose", summary="Set options", openapi_extra=request_body({"type": "object"})
)
async def set_options(request: Request) -> Response:
    """Accept options and ignore them, because they would apply to all clients. Another model is refused."""
    service: Service = request.state.service
    with admitted(request) as intake:
        fields = await intake.receive_body(read_json(intake))
    current = service.settings.inpaint_model
    advice = "can be named in a request's override_settings"
    check_same_model(fields.value("sd_model_checkpoint", str, "") or current, current, advice)
    return JSONResponse(None, headers=ignored_header(set(fields)))


@router.get("/sdapi/v1/sd-models", name="automatic_models", summary="List models")
async def models(request: Request) -> Response:
    """List the models that fill holes."""
    service: Service = request.state.service
    return JSONResponse(models_json(service.models.statuses()))


@router.get("/sdapi/v1/samplers", name="automatic_samplers", summary="List samplers")
async def samplers() -> Response:
    """Get an empty list: no model here uses a sampler."""
    return JSONResponse([])


@router.get("/sdapi/v1/progress", name="automatic_progress", summary="Get the progress")
async def progress() -> Response:
    """Get a progress of 0 at all times: a fill has no steps."""
    return JSONResponse(idle_progress())


async def _read(intake: HttpIntake) -> Img2ImgRequest:
    fields, max_pixels = await read_json(intake), intake.service.settings.max_pixels
    return await off_loop(intake.admitted_request.body_bytes, lambda: parse_img2img(fields, max_pixels))


async def _respond(intake: HttpIntake, asked: Img2ImgRequest) -> Response:
    reply = await intake.run(await _with_white_mask(intake, asked.order))
    size, files = asked.size or reply.size, [picture.body for picture in reply.pictures]
    if size != reply.size:
        pixels = max(size.height * size.width, reply.size.height * reply.size.width)
        intake.count_bytes(8 * pixels)
        scale = partial(scaled, size=size, max_pixels=intake.service.settings.max_pixels)
        files = await intake.on_codec_thread(lambda: [scale(file) for file in files], pixels)
    writing = partial(json_body, img2img_json(reply, files, size))
    body = await off_loop(sum(map(len, files)), writing)
    headers = {**reply_headers(reply), **ignored_header(set(asked.ignored))}
    return Response(body, media_type=JSON_TYPE, headers=headers)


async def _with_white_mask(intake: HttpIntake, order: Order) -> Order:
    """Return the order with a mask that is white where it was drawn on a transparent ground.

    A mask that cannot be read stays as it is: the pipeline refuses it, and counts the failure for its model.
    """
    data, max_pixels = order.files["mask"], intake.service.settings.max_pixels
    try:
        header = read_header(data, max_pixels=max_pixels)
        if not may_be_drawn(header):
            return order
        intake.count_bytes(2 * decoded_bytes(header, len(data)))
        whiten = partial(white_where_drawn, data, header, max_pixels)
        mask = await intake.on_codec_thread(whiten, header.size.height * header.size.width)
    except (InvalidImage, TooLarge, UnsupportedType):
        return order
    return replace(order, files={**order.files, "mask": mask})


AUTOMATIC1111 = ForeignApi(
    "automatic1111",
    "A part of AUTOMATIC1111's API: `img2img` with a mask.",
    router,
    "/sdapi/v1",
    error_body,
    {
        **NO_FIELD_FOR_IT,
        "sizes_differ": "scale the mask to the size of the image, or send inpaint_full_res=false and resize_mode=0",
        **dict.fromkeys(("mask_empty", "mask_full"), "check inpainting_mask_invert"),
        "model_required": "name one in override_settings.sd_model_checkpoint",
    },
    {"image": "init_images"},
    idle_posts=frozenset({"/sdapi/v1/options"}),
    basic_keys=True,
)
"""The API as the application serves it; docs/compatible_apis.md says what differs from AUTOMATIC1111's."""
