"""Parts of the OpenAPI document that FastAPI cannot infer: multipart bodies, image replies and problems (errors)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from typing import Any

from fastapi.responses import Response
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from engines.manifest import Task
from service.core.errors import codes_by_status, problem_kinds
from service.core.schemas import OPTIONS, ImageReply, ImagesReply, JobReply, Problem
from service.web import openapi_texts as texts
from service.web.form import FORM_TYPE, URL_FORM_TYPE
from service.web.responses import PROBLEM_TYPE

_IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp")
_IMAGE = {"schema": {"type": "string", "format": "binary"}}
_RETRIED = (409, 429, 503, 504)
"""Statuses of errors that may be temporary, and may then have a Retry-After."""
_CODES: dict[int, tuple[str, ...]] = {
    403: ("forbidden", "foreign_origin"),
    404: ("not_found",),
    422: ("invalid_option",),
    500: ("internal",),
}
"""Values of `code` of a call that computes no picture, for statuses at which other calls have more."""
_CODES_OF_PICTURES = {
    403: _CODES[403],
    404: ("model_not_found", "not_found"),
    422: tuple(code for code in codes_by_status()[422] if code != "cursor_invalid"),
}
"""The same of a call that computes pictures."""
_CODES_OF_LINKS: dict[int, tuple[str, ...]] = {403: ("link_invalid", "link_expired")}
"""The same of a link to a result, which needs no key."""
_REFERRED: tuple[type[BaseModel], ...] = (ImageReply, ImagesReply, Problem)
"""Schemas used only with media types that FastAPI ignores, so they must be added to the document by hand."""
_LINE_END = re.compile(r"(?<!\n)\n(?!\n)")
"""The end of a line within a paragraph of a docstring; Swagger UI would keep it."""
_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, made by `retouch keys create`."},
    "header": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "The same key, in another header.",
    },
}


def problem_responses(*statuses: int, codes: Mapping[int, Collection[str]] = {}) -> dict[int | str, dict[str, Any]]:
    """Return descriptions of the responses with these statuses, as RFC 9457 problems.

    Args:
        statuses: statuses of errors.
        codes: values of `code` that a call can have, by status; by default all of the status.
    """
    return {status: _problem_response(status, codes.get(status, codes_by_status()[status])) for status in statuses}


def _problem_response(status: int, codes: Collection[str]) -> dict[str, Any]:
    retry = texts.RETRY_HEADERS if status in _RETRIED else {}
    content = {"schema": _schema_reference(Problem), "example": _problem_example(status, codes)}
    return {
        "description": _problem_description(status, codes),
        "content": {PROBLEM_TYPE: content},
        "headers": _headers({**texts.PROBLEM_HEADERS.get(status, {}), **retry}),
    }


def _foreign_error(api: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}}
    description = f"An error, in the format of the API {api}."
    return {"description": description, "content": content, "headers": _headers(texts.RETRY_HEADERS)}


def _problem_description(status: int, codes: Collection[str]) -> str:
    return f"{texts.PROBLEMS[status]} `code`: {', '.join(f'`{code}`' for code in codes)}."


def _problem_example(status: int, codes: Collection[str]) -> dict[str, Any]:
    """Return an example of a problem with one of the codes.

    `complete_document` writes the path of the call into its `instance`.
    """
    code = next(code for code in codes if code in texts.DETAILS)
    kind = next(kind for kind in problem_kinds() if code in (kind.default_code, *kind.further_codes))
    return {
        "type": f"urn:retouch:problem:{code}",
        "title": kind.title,
        "status": status,
        "detail": texts.DETAILS[code],
        "instance": "",
        "code": code,
        "request_id": "4e52e283eb4da396bf201b6d14c8f569",
        "retryable": kind.retryable,
    }


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
    pictures = {f"/v1/{task}" for task in OPTIONS}
    for path, calls in whole["paths"].items():
        codes = _CODES_OF_PICTURES if path in pictures else _CODES
        for call in calls.values():
            call["description"] = _LINE_END.sub(" ", call["description"])
            statuses = (405, 421, 500) if path in public else (401, 403, 405, 421, 429, 500)
            if name := foreign(path):
                call["responses"]["default"] = _foreign_error(name)
            else:
                call["responses"] |= {
                    str(status): answer for status, answer in problem_responses(*statuses, codes=codes).items()
                }
            for response in call["responses"].values():
                if PROBLEM_TYPE in response.get("content", {}):
                    response["content"][PROBLEM_TYPE]["example"]["instance"] = path
                response["headers"] = {**response.get("headers", {}), **_headers(texts.COMMON_HEADERS)}
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
    parts = {name: {"type": "string", "format": "binary", "description": texts.FILE_PARTS[name]} for name in files}
    parts |= {name: {"type": "string", "format": "binary", "description": texts.FILE_PARTS[name]} for name in optional}
    body = {
        "type": "object",
        "required": list(files),
        "additionalProperties": False,
        "properties": {**parts, **{name: _text_field(field) for name, field in schema["properties"].items()}},
    }
    types = (FORM_TYPE,) if files or optional else (FORM_TYPE, URL_FORM_TYPE)
    found = {"content": _image_content(several), "headers": _headers(texts.PICTURE_HEADERS)}
    return {
        "response_class": Response,
        "responses": {
            200: {
                "description": "The picture in the format asked for; several pictures as JSON or multipart/mixed.",
                **found,
            },
            202: {
                "description": "With `Prefer: respond-async`: the job that was accepted.",
                "model": JobReply,
                "headers": _headers(texts.JOB_HEADERS),
            },
            **problem_responses(400, 404, 408, 409, 410, 413, 415, 422, 500, 503, 504, codes=_CODES_OF_PICTURES),
        },
        "openapi_extra": {
            "parameters": texts.PICTURE_PARAMETERS,
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
                "description": "The image."
                if link
                else "The image; with `Accept: application/json` its description (sidecar).",
                "content": {**dict.fromkeys(_IMAGE_TYPES, _IMAGE), **sidecar},
                "headers": _headers(texts.RESULT_HEADERS),
            },
            206: {
                "description": "The requested range of the image.",
                "content": dict.fromkeys(_IMAGE_TYPES, _IMAGE),
                "headers": _headers(
                    {
                        **texts.RESULT_HEADERS,
                        "Content-Range": "The range and the size of the file: `bytes FIRST-LAST/SIZE`.",
                    }
                ),
            },
            304: {
                "description": "Not modified: the copy that the client has is current.",
                "headers": _headers(texts.RESULT_HEADERS),
            },
            **problem_responses(*((403,) if link else ()), 404, 410, 416, 422, 503, codes=_CODES | _CODES_OF_LINKS),
        },
        "openapi_extra": {"parameters": [texts.IF_NONE_MATCH, *texts.RANGE_PARAMETERS]},
    }


def uncached_route(description: str, *further_codes: str) -> dict[str, Any]:
    """Return the keyword arguments, except the model, of a route whose reply no cache may store.

    Args:
        description: what the reply is.
        further_codes: values of `code` with status 422, besides `invalid_option`.
    """
    described = {"description": description, "headers": _headers({"Cache-Control": "`no-store`"})}
    codes = _CODES | {422: (*_CODES[422], *further_codes)}
    return {"responses": {200: described, **problem_responses(404, 422, 503, codes=codes)}}


def thumbnail() -> dict[str, Any]:
    """Keyword arguments of the route that returns the thumbnail of a stored result."""
    headers = _headers({name: texts.RESULT_HEADERS[name] for name in ("ETag", "Cache-Control")})
    return {
        "response_class": Response,
        "responses": {
            200: {"description": "The thumbnail.", "content": {"image/webp": _IMAGE}, "headers": headers},
            304: {"description": "Not modified: the copy that the client has is current.", "headers": headers},
            **problem_responses(404, 410, 422, 503, codes=_CODES),
        },
        "openapi_extra": {"parameters": [texts.IF_NONE_MATCH]},
    }


def deleted_result() -> dict[str, Any]:
    """Keyword arguments of the route that deletes a stored result."""
    responses = problem_responses(404, 410, 422, 503, codes=_CODES)
    responses[202] = {
        "description": "Deleted: nobody can fetch it any more. Copies that cannot be reached now are removed later."
    }
    responses[204] = {"description": "Deleted, with every copy."}
    return {"response_class": Response, "status_code": 204, "responses": responses}


def metrics_route() -> dict[str, Any]:
    """Keyword arguments of the route that returns the Prometheus metrics."""
    content = {kind: {"schema": {"type": "string"}} for kind in ("text/plain", "application/openmetrics-text")}
    series = {"description": "All series, in the text format of Prometheus or in OpenMetrics.", "content": content}
    return {"response_class": Response, "responses": {200: series, **problem_responses(404, 503, codes=_CODES)}}


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
