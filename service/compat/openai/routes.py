"""Routes of OpenAI's images API."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.compat.json_fields import JSON_TYPE, read_json
from service.compat.openai.own_alpha import without_alpha
from service.compat.openai.replies import error_body, images_events, images_json
from service.compat.openai.requests import (
    EDIT_LIMITS,
    ImagesRequest,
    parse_edit,
    parse_generation,
    parse_json_edit,
)
from service.core.errors import InvalidImage, InvalidOption, ServiceError, TooLarge, UnsupportedType
from service.core.order import Order
from service.core.schemas import InpaintOptions
from service.imaging.files.decode_cost import decoded_bytes
from service.imaging.files.header import read_header
from service.intake.large_bodies import off_loop
from service.intake.options import ignored_header
from service.intake.written_bodies import json_body
from service.web.foreign_api import ForeignApi
from service.web.form import media_type, read_parts
from service.web.intake import HttpIntake, admitted
from service.web.responses import reply_headers

router = APIRouter(tags=["openai"])
_FILE = {"type": "string", "format": "binary", "description": "JPEG, PNG or WebP."}
_PICTURE = {
    "type": "object",
    "properties": {"image_url": {"type": "string", "description": "A JPEG, PNG or WebP as data URL, or in base64."}},
    "required": ["image_url"],
}
_ONE_PICTURE = {"type": "array", "items": _PICTURE, "minItems": 1, "maxItems": 1}
_REPLY: dict[int | str, dict[str, Any]] = {
    200: {"description": "`data`: the pictures as `b64_json` or `url`. With `stream`, events."}
}


def _content(kind: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": True}
    return {kind: {"schema": schema}}


def _body(content: dict[str, Any]) -> dict[str, Any]:
    """Return the `openapi_extra` of a route that requires a body of one of these media types."""
    return {"requestBody": {"required": True, "content": content}}


_TEXTS = {
    name: {"type": "string", "description": description}
    for name, description in {
        "model": "Model as `name` or `name/version`. By default the server's for this task.",
        "prompt": "Ignored.",
        "output_format": "`png` (the default), `jpeg` or `webp`.",
        "response_format": "`b64_json` (default) or `url`, a signed link for an hour, if the server has a public URL.",
    }.items()
}
_WHITE = 'send extra_body={"mask_mode": "white"} for a mask whose white is filled'
_ALPHA = f"what is transparent in it (alpha 0) is filled; {_WHITE}"
_OWN_ALPHA = "the image is its own mask: make transparent (alpha 0) what is to be filled, and nothing else"
_NO_MASK = "there is no `mask`, and the image has no alpha channel to use as one; send a mask"
_NUMBERS = {
    "n": {"type": "integer", "description": "Number of different pictures."},
    "seed": {"type": "integer", "description": "Seed of the random numbers. By default the server chooses one."},
}


@router.post(
    "/v1/images/edits",
    name="openai_edit",
    summary="Fill a hole",
    response_class=Response,
    responses=_REPLY,
    openapi_extra=_body(
        {
            **_content("multipart/form-data", {"image": _FILE, "mask": _FILE, **_TEXTS, **_NUMBERS}, ["image"]),
            **_content(JSON_TYPE, {"images": _ONE_PICTURE, "mask": _PICTURE, **_TEXTS, **_NUMBERS}, ["images"]),
        }
    ),
)
async def edits(request: Request) -> Response:
    """Fill the transparent part (alpha 0) of `mask`, or of `image` if there is no mask.

    The body is a form with files, or JSON with data URLs. A mask without alpha needs the field `mask_mode`: `white` or
    `black`. Fields that are not listed here are ignored; the reply names them in `X-Ignored-Fields`.
    """
    return await _answer(request, _read_edit, "image_edit.completed")


@router.post(
    "/v1/images/generations",
    name="openai_generation",
    summary="Generate pictures",
    response_class=Response,
    responses=_REPLY,
    openapi_extra=_body(_content(JSON_TYPE, {**_TEXTS, **_NUMBERS}, [])),
)
async def generations(request: Request) -> Response:
    """Generate pictures from random numbers. The prompt is ignored."""
    return await _answer(request, _read_generation, "image_generation.completed")


async def _answer(request: Request, read: Callable[[HttpIntake], Awaitable[ImagesRequest]], event: str) -> Response:
    with admitted(request) as intake:
        asked = await intake.receive_body(read(intake))
        if asked.links and intake.service.links is None:
            raise InvalidOption(
                "response_format: this server makes no links, as it has no --public-url; ask for b64_json",
                code="links_off",
                field="response_format",
            )
        work = partial(_respond, intake, asked, event)
        return await intake.run_until_deadline(intake.once(asked.order, asked.varies_with, work))


async def _read_edit(intake: HttpIntake) -> ImagesRequest:
    if media_type(intake.request) == JSON_TYPE:
        fields = await read_json(intake)
        return await off_loop(intake.admitted_request.body_bytes, lambda: parse_json_edit(fields))
    reading = read_parts(intake.request, intake.count_bytes, max_body_bytes=intake.max_body_bytes, limits=EDIT_LIMITS)
    return parse_edit(await reading)


async def _read_generation(intake: HttpIntake) -> ImagesRequest:
    return parse_generation(await read_json(intake))


async def _respond(intake: HttpIntake, asked: ImagesRequest, event: str) -> Response:
    order = await _with_own_alpha(intake, asked.order) if asked.own_alpha else asked.order
    try:
        reply = await intake.run(order)
    except ServiceError as error:
        raise _explained(error, asked) from error
    headers = {**reply_headers(reply), **ignored_header(set(asked.ignored))}
    created = int(time.time())
    if asked.stream:
        events = await off_loop(reply.nbytes, partial(images_events, reply, created, event))
        return Response(events, media_type="text/event-stream", headers=headers)
    links = intake.service.links if asked.links else None
    content = images_json(reply, created, None if links is None else links.url_of)
    return Response(await off_loop(reply.nbytes, partial(json_body, content)), media_type=JSON_TYPE, headers=headers)


def _explained(error: ServiceError, asked: ImagesRequest) -> ServiceError:
    """Return an error in the terms of this API, in which alpha is the mask and a picture can be its own."""
    if asked.own_alpha and error.code == "no_alpha":
        return InvalidOption(_NO_MASK, code="no_alpha", field="mask")
    if error.code in ("mask_empty", "mask_full") and asked.order.options_as(InpaintOptions).mask_mode == "alpha":
        error = error.with_advice(_OWN_ALPHA if asked.own_alpha else _ALPHA)
    return error.with_field("image") if asked.own_alpha and error.field == "mask" else error


async def _with_own_alpha(intake: HttpIntake, order: Order) -> Order:
    """Return the order with an opaque picture, and with its file as the mask.

    A picture that cannot be read, or has no alpha, stays as it is: the pipeline refuses it, and counts the failure for
    its model.
    """
    data, max_pixels = order.files["image"], intake.service.settings.max_pixels
    image = data
    with suppress(InvalidImage, TooLarge, UnsupportedType):
        header = read_header(data, max_pixels=max_pixels)
        if header.alpha or header.transparent:
            intake.count_bytes(2 * decoded_bytes(header, len(data)))
            opaque = partial(without_alpha, data, header, max_pixels)
            image = await intake.on_codec_thread(opaque, header.size.height * header.size.width)
    return replace(order, files={"image": image, "mask": data})


OPENAI = ForeignApi(
    "openai",
    "OpenAI's images API. Prompts are ignored.",
    router,
    "/v1/images",
    error_body,
    {
        "no_alpha": _WHITE,
        "format_too_small": "ask for output_format=png",
    },
    {"samples": "n", "count": "n", "format": "output_format"},
    shared="/v1/models",
)
"""The API as the application serves it; docs/compatible_apis.md says what differs from OpenAI's."""
