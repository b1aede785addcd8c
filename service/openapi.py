"""The parts of the OpenAPI document that FastAPI cannot infer: multipart bodies, image replies and problems."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fastapi.responses import Response
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.errors import ServiceError
from service.fairness import HIGHEST_PRIORITY, PRIORITY_NAMES
from service.replies import PROBLEM_TYPE
from service.schemas import ImageReply, ImagesReply, JobReply, Problem

_IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp")
_IMAGE = {"schema": {"type": "string", "format": "binary"}}
_HEADERS = {
    "X-Request-ID": "the request's id",
    "X-Model": "`name/version`",
    "X-Engine": "`engine/precision`",
    "X-Batch-Size": "samples in the batch it was computed in",
    "X-Mask-Coverage": "share of the pixels that were filled (inpaint)",
    "X-Seed": "what was drawn from (models that draw)",
    "Server-Timing": "milliseconds in memory, decode, preprocess, queue, infer, postprocess, encode",
    "Location": "where the stored result is",
}
_PARAMETERS = [
    {
        "name": "X-Request-Timeout-Ms",
        "in": "header",
        "schema": {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400_000},
        "description": "deadline; work that cannot meet it is not begun (504)",
    },
    {
        "name": "X-Request-ID",
        "in": "header",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"},
        "description": "returned, logged and stored",
    },
    {
        "name": "X-Priority",
        "in": "header",
        "schema": {"type": "string", "enum": [*PRIORITY_NAMES, *map(str, range(HIGHEST_PRIORITY + 1))]},
        "description": "whose turn it is in the queue: a name, or 0 (last) to 9 (first)",
    },
    {
        "name": "Prefer",
        "in": "header",
        "schema": {"type": "string", "enum": ["respond-async"]},
        "description": "`respond-async`: 202 and a job to poll",
    },
    {
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,255}$"},
        "description": "the same key gives the same answer, computed once",
    },
]
_JOB_HEADERS = {"Location": "where the job is polled", "Preference-Applied": "`respond-async`"}
_RETRY_HEADERS = {"Retry-After": "whole seconds after which it is worth asking again"}
_RETRIED = (409, 429, 503, 504)
"""Errors that pass, some of which say when."""
_REFERRED: tuple[type[BaseModel], ...] = (ImageReply, ImagesReply, Problem)
"""Named beside media types that FastAPI would give no schema, so that it does not know of them."""
_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Responses that are RFC 9457 problems."""
    titles = {error.status: error.title for error in ServiceError.__subclasses__()}
    content = {PROBLEM_TYPE: {"schema": _ref(Problem)}}
    return {
        status: {
            "description": titles[status],
            "content": content,
            **({"headers": _headers(_RETRY_HEADERS)} if status in _RETRIED else {}),
        }
        for status in statuses
    }


def secured(document: dict[str, Any], public: Collection[str]) -> dict[str, Any]:
    """The document, with how keys are sent, what a call without a good one is answered, and all that it refers to.

    Args:
        document: as FastAPI makes it.
        public: paths that need no key.
    """
    refusals = {str(status): answer for status, answer in problems(401, 403, 429).items()}
    paths = {
        path: calls if path in public else {method: _refusable(call, refusals) for method, call in calls.items()}
        for path, calls in document["paths"].items()
    }
    _, referred = models_json_schema(
        [(model, "serialization") for model in _REFERRED], ref_template="#/components/schemas/{model}"
    )
    schemas = {**document["components"]["schemas"], **referred["$defs"]}
    components = {**document["components"], "schemas": schemas, "securitySchemes": _SECURITY_SCHEMES}
    return {**document, "paths": paths, "components": components}


def _refusable(call: dict[str, Any], refusals: dict[str, Any]) -> dict[str, Any]:
    """A call that a server with keys answers to those alone who have one; without keys everyone is answered (`{}`)."""
    schemes: list[dict[str, list[str]]] = [{name: []} for name in _SECURITY_SCHEMES]
    return {**call, "responses": {**call["responses"], **refusals}, "security": [{}, *schemes]}


def image_call(
    options: type[BaseModel], files: tuple[str, ...], optional: tuple[str, ...] = (), *, several: str | None = None
) -> dict[str, Any]:
    """Keyword arguments of a route that takes multipart/form-data and gives images back.

    Args:
        options: the text fields.
        files: file parts that are required; without any, the body may be empty.
        optional: further file parts.
        several: the field that asks for more than one image.
    """
    schema = options.model_json_schema(mode="validation")
    parts = {name: {"type": "string", "format": "binary", "description": "JPEG, PNG or WebP"} for name in files}
    parts |= {name: {"type": "string", "format": "binary", "description": "of some models"} for name in optional}
    body = {
        "type": "object",
        "required": list(files),
        "additionalProperties": False,
        "properties": {**parts, **{name: _text_field(field) for name, field in schema["properties"].items()}},
    }
    found = {"content": _image_content(several), "headers": _headers(_HEADERS)}
    return {
        "response_class": Response,
        "responses": {
            200: {"description": "The picture, or the pictures", **found},
            202: {"description": "Accepted as a job", "model": JobReply, "headers": _headers(_JOB_HEADERS)},
            **problems(400, 408, 409, 413, 415, 422, 404, 500, 503, 504),
        },
        "openapi_extra": {
            "parameters": _PARAMETERS,
            "requestBody": {"required": bool(files), "content": {"multipart/form-data": {"schema": body}}},
        },
    }


def _image_content(several: str | None) -> dict[str, Any]:
    """Media types of a reply; `several` results are never an image alone."""
    as_json: list[type[BaseModel]] = [ImageReply, ImagesReply] if several else [ImageReply]
    content = {**dict.fromkeys(_IMAGE_TYPES, _IMAGE), "application/json": {"schema": {"anyOf": [*map(_ref, as_json)]}}}
    return {**content, "multipart/mixed": _IMAGE} if several else content


def stored_result() -> dict[str, Any]:
    """Keyword arguments of the route that gives a stored result back."""
    content = {**dict.fromkeys(_IMAGE_TYPES, _IMAGE), "application/json": {"schema": {"type": "object"}}}
    tag = {"description": "changes with the representation alone", "schema": {"type": "string"}}
    known = {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}, "description": "an `ETag`: 304"}
    return {
        "response_class": Response,
        "responses": {
            200: {"description": "The image, or its sidecar as JSON", "content": content, "headers": {"ETag": tag}},
            304: {"description": "The client has it already"},
            **problems(404, 422, 503),
        },
        "openapi_extra": {"parameters": [known]},
    }


def _text_field(field: dict[str, Any]) -> dict[str, Any]:
    """A field of a form is absent rather than null."""
    choices = [choice for choice in field.get("anyOf", []) if choice != {"type": "null"}]
    kept = {key: value for key, value in field.items() if key not in ("anyOf", "title") and value is not None}
    return {**kept, **(choices[0] if choices else {})}


def _headers(texts: dict[str, str]) -> dict[str, Any]:
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in texts.items()}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
