"""Parts of the OpenAPI document that FastAPI cannot infer: multipart bodies, image replies and problems (errors)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from typing import Any

from fastapi.responses import Response
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from engines.manifest import Task
from service.core.errors import codes_by_status, problem_kinds
from service.core.flow import HIGHEST_PRIORITY, PRIORITY_NAMES
from service.core.schemas import ImageReply, ImagesReply, JobReply, Problem
from service.web.form import FORM_TYPE, URL_FORM_TYPE
from service.web.responses import PROBLEM_TYPE

_IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp")
_IMAGE = {"schema": {"type": "string", "format": "binary"}}
TAGS = [
    {"name": "pictures", "description": "from images and masks, or from nothing, to pictures"},
    {"name": "jobs", "description": "requests that were sent with `Prefer: respond-async`"},
    {"name": "results", "description": "what was saved"},
    {"name": "models", "description": "what is served"},
    {"name": "operations", "description": "health and metrics"},
]
_COMMON_HEADERS = {
    "X-Request-ID": "the request's id",
    "traceparent": "W3C Trace Context, where the server traces the request",
}
"""Headers of every reply, except those for browsers, which docs/security.md lists."""
_HEADERS = {
    "X-Model": "`name/version`",
    "X-Engine": "`engine/precision`",
    "X-Batch-Size": "samples in the batch it was computed in",
    "X-Mask-Coverage": "share of the pixels that were filled (inpaint)",
    "X-Seed": "what was drawn from (models that draw)",
    "X-Texture": "whether the fill got texture from the picture (with `texture=copied`): `copied`, or `none`",
    "Server-Timing": "milliseconds in memory, decode, preprocess, queue, infer, postprocess, texture, encode",
    "Location": "where the stored result is",
    "Vary": "`Accept`",
    "Cache-Status": "whether it was computed for this request (RFC 9211), where the server has a cache of results",
    "Idempotency-Replayed": "`true` for an answer that was given before, to the same `Idempotency-Key`",
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
    {
        "name": "traceparent",
        "in": "header",
        "schema": {"type": "string"},
        "description": "W3C Trace Context: the trace that the request belongs to",
    },
]
_JOB_HEADERS = {
    "Location": "where the job is polled",
    "Preference-Applied": "`respond-async`",
    "Idempotency-Replayed": _HEADERS["Idempotency-Replayed"],
}
_RESULT_HEADERS = {
    "Accept-Ranges": "`bytes`, of an image",
    "ETag": "changes with the representation alone",
    "Cache-Control": "of the client alone, for as long as it likes: a result never changes",
    "Vary": "`Accept`",
}
_KNOWN = {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}, "description": "an `ETag`: 304"}
_RANGE_PARAMETERS = [
    {
        "name": "Range",
        "in": "header",
        "schema": {"type": "string"},
        "description": "one range of the image: `bytes=0-1023`: 206",
    },
    {"name": "If-Range", "in": "header", "schema": {"type": "string"}, "description": "an `ETag`: else the whole"},
]
_RETRY_HEADERS = {"Retry-After": "whole seconds after which it is worth asking again"}
_PROBLEM_HEADERS = {
    401: {"WWW-Authenticate": "`Bearer`"},
    405: {"Allow": "the methods of the path"},
    416: {"Content-Range": "`bytes */` and the size of the file"},
}
_RETRIED = (409, 429, 503, 504)
"""Statuses of errors that may be temporary, and may then have a Retry-After."""
_REFERRED: tuple[type[BaseModel], ...] = (ImageReply, ImagesReply, Problem)
"""Schemas used only with media types that FastAPI ignores, so they must be added to the document by hand."""
_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return descriptions of the responses with these statuses, as RFC 9457 problems with all possible `code`s."""
    content = {PROBLEM_TYPE: {"schema": _schema_reference(Problem)}}
    return {
        status: {
            "description": _problem_description(status),
            "content": content,
            "headers": _headers({**_PROBLEM_HEADERS.get(status, {}), **(_RETRY_HEADERS if status in _RETRIED else {})}),
        }
        for status in statuses
    }


def _foreign_error(api: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}}
    return {"description": f"An error in the form of {api}", "content": content, "headers": _headers(_RETRY_HEADERS)}


def _problem_description(status: int) -> str:
    titles = [kind.title for kind in problem_kinds() if kind.status == status]
    codes = ", ".join(f"`{code}`" for code in codes_by_status()[status])
    return f"{' / '.join(titles)}. `code`: {codes}"


def complete_document(
    document: Mapping[str, Any],
    public: Collection[str],
    models: Mapping[Task, str],
    foreign: Callable[[str], str] = lambda _: "",
) -> dict[str, Any]:
    """Return the document completed with what applies to every call: keys, common errors and headers, and schemas.

    Args:
        document: the document from FastAPI, which is not changed.
        public: paths that need no key.
        models: example for the field `model` of each task's call.
        foreign: returns the name of the foreign API to which a path belongs; empty for the server's own API.
    """
    whole = deepcopy(dict(document))
    for path, calls in whole["paths"].items():
        for call in calls.values():
            statuses = (405, 421, 500) if path in public else (401, 403, 405, 421, 429, 500)
            if name := foreign(path):
                call["responses"]["default"] = _foreign_error(name)
            else:
                call["responses"] |= {str(status): answer for status, answer in problem_responses(*statuses).items()}
            for response in call["responses"].values():
                response["headers"] = {**response.get("headers", {}), **_headers(_COMMON_HEADERS)}
            if path not in public:  # `{}` means that a server may also be configured without keys
                call["security"] = [{}, *({name: []} for name in _SECURITY_SCHEMES)]
    for task, name in models.items():
        body = whole["paths"][f"/v1/{task}"]["post"]["requestBody"]["content"]["multipart/form-data"]
        body["schema"]["properties"]["model"]["examples"] = [name]
    _, referred = models_json_schema(
        [(model, "serialization") for model in _REFERRED], ref_template="#/components/schemas/{model}"
    )
    whole["components"]["schemas"] |= referred["$defs"]
    whole["components"]["securitySchemes"] = _SECURITY_SCHEMES
    return whole


def image_route(
    options: type[BaseModel], files: tuple[str, ...], optional: tuple[str, ...] = (), *, several: str | None = None
) -> dict[str, Any]:
    """Return the keyword arguments of a route that takes a form and returns images.

    Args:
        options: model of the text fields.
        files: required file parts; without any, the body may be empty or a URL-encoded form.
        optional: optional file parts.
        several: name of the field that requests more than one image; None: the route returns one.
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
    types = (FORM_TYPE,) if files or optional else (FORM_TYPE, URL_FORM_TYPE)
    found = {"content": _image_content(several), "headers": _headers(_HEADERS)}
    return {
        "response_class": Response,
        "responses": {
            200: {"description": "The picture, or the pictures", **found},
            202: {"description": "Accepted as a job", "model": JobReply, "headers": _headers(_JOB_HEADERS)},
            **problem_responses(400, 408, 409, 410, 413, 415, 422, 404, 500, 503, 504),
        },
        "openapi_extra": {
            "parameters": _PARAMETERS,
            "requestBody": {"required": bool(files), "content": {kind: {"schema": body} for kind in types}},
        },
    }


def _image_content(several: str | None) -> dict[str, Any]:
    """Media types of a reply; `several` results come as JSON or multipart/mixed."""
    as_json: list[type[BaseModel]] = [ImageReply, ImagesReply] if several else [ImageReply]
    content = {
        **dict.fromkeys(_IMAGE_TYPES, _IMAGE),
        "application/json": {"schema": {"anyOf": [*map(_schema_reference, as_json)]}},
    }
    return {**content, "multipart/mixed": _IMAGE} if several else content


def result_route(*, link: bool = False) -> dict[str, Any]:
    """Keyword arguments of the route that returns a stored result; a `link` needs a signature and has no sidecar."""
    sidecar = {} if link else {"application/json": {"schema": {"type": "object"}}}
    return {
        "response_class": Response,
        "responses": {
            200: {
                "description": "The image" if link else "The image, or its sidecar as JSON",
                "content": {**dict.fromkeys(_IMAGE_TYPES, _IMAGE), **sidecar},
                "headers": _headers(_RESULT_HEADERS),
            },
            206: {
                "description": "The range of the image that was asked for",
                "content": dict.fromkeys(_IMAGE_TYPES, _IMAGE),
                "headers": _headers({**_RESULT_HEADERS, "Content-Range": "which bytes these are, of how many"}),
            },
            304: {"description": "The client has it already", "headers": _headers(_RESULT_HEADERS)},
            **problem_responses(*((403,) if link else ()), 404, 410, 416, 422, 503),
        },
        "openapi_extra": {"parameters": [_KNOWN, *_RANGE_PARAMETERS]},
    }


def uncached_route(description: str) -> dict[str, Any]:
    """Return the keyword arguments, except the model, of a route whose reply no cache may store."""
    described = {"description": description, "headers": _headers({"Cache-Control": "`no-store`"})}
    return {"responses": {200: described, **problem_responses(404, 422, 503)}}


def thumbnail() -> dict[str, Any]:
    """Keyword arguments of the route that returns the thumbnail of a stored result."""
    headers = _headers({name: _RESULT_HEADERS[name] for name in ("ETag", "Cache-Control")})
    return {
        "response_class": Response,
        "responses": {
            200: {"description": "The thumbnail", "content": {"image/webp": _IMAGE}, "headers": headers},
            304: {"description": "The client has it already", "headers": headers},
            **problem_responses(404, 410, 422, 503),
        },
        "openapi_extra": {"parameters": [_KNOWN]},
    }


def deleted_result() -> dict[str, Any]:
    """Keyword arguments of the route that deletes a stored result."""
    responses = problem_responses(404, 410, 422, 503)
    responses[202] = {"description": "Deleted; copies that cannot be reached now are removed later"}
    responses[204] = {"description": "Deleted, with every copy"}
    return {"response_class": Response, "status_code": 204, "responses": responses}


def metrics_route() -> dict[str, Any]:
    """Keyword arguments of the route that returns the Prometheus metrics."""
    content = {kind: {"schema": {"type": "string"}} for kind in ("text/plain", "application/openmetrics-text")}
    series = {"description": "Prometheus series", "content": content}
    return {"response_class": Response, "responses": {200: series, **problem_responses(404)}}


def _text_field(field: dict[str, Any]) -> dict[str, Any]:
    """The schema of a form field: it is never null, but it may be empty, which counts as absent."""
    choices = [choice for choice in field.get("anyOf", []) if choice != {"type": "null"}]
    kept = {key: value for key, value in field.items() if key not in ("anyOf", "title") and value is not None}
    whole = {**kept, **(choices[0] if choices else {})}
    return {**whole, "pattern": f"^$|{whole['pattern']}"} if "pattern" in whole else whole


def _headers(texts: dict[str, str]) -> dict[str, Any]:
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in texts.items()}


def _schema_reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
