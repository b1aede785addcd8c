"""A foreign API as the application serves it: its routes, its paths and its error format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from service.core.errors import ServiceError
from service.web.responses import error_headers

NO_FIELD_FOR_IT = {
    "sizes_differ": "scale the mask to the size of the image before sending it",
    "spool_full": "try again later",
    "storage_unavailable": "try again later",
}
"""Advice by error code, for APIs that have no field to scale a mask or to leave a result unsaved."""


@dataclass(frozen=True, slots=True)
class ForeignApi:
    """Another server's API that this server implements besides its own."""

    name: str
    """Name of the API in the setting `apis`, and its tag in the OpenAPI document."""
    description: str
    router: APIRouter
    prefix: str
    """Prefix of the paths whose errors have this API's format, without a trailing slash."""
    error_body: Callable[[ServiceError], dict[str, Any]]
    """Converts an error to the JSON body of its response."""
    advice: Mapping[str, str] = field(default_factory=dict)
    """Advice by error `code`, which replaces the advice for this server's own API."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """This API's names of fields that an error can be about, by this server's own names; others have the same name."""
    public: frozenset[str] = frozenset()
    """Paths that need no key."""
    idle_posts: frozenset[str] = frozenset()
    """Paths of POST requests that request no pictures and do not count towards a key's daily quota."""
    basic_keys: bool = False
    """Whether a key may also come as the password of HTTP Basic."""
    shared: str = ""
    """Prefix of the server's own paths that this API's clients request, too, without a trailing slash; empty: none.
    Problem documents of these paths, and of paths that do not exist, also have the members of `error_body`."""

    def shares(self, path: str) -> bool:
        """Return whether this API's clients request this path of the server's own."""
        return bool(self.shared) and f"{path}/".startswith(f"{self.shared}/")

    def error_response(self, error: ServiceError) -> Response:
        """Return an error in this API's format, with the headers that every error has."""
        scheme = "Basic" if self.basic_keys else "Bearer"
        advised = error.with_advice(self.advice[error.code]) if error.code in self.advice else error
        named = advised.with_field(self.fields[error.field]) if error.field in self.fields else advised
        return JSONResponse(self.error_body(named), error.status, error_headers(error, scheme))


class ForeignPaths:
    """Look-up of foreign APIs by path, fast enough for every request."""

    def __init__(self, apis: Iterable[ForeignApi]) -> None:
        self._apis = {api.prefix: api for api in apis}
        prefixes = "|".join(sorted(map(re.escape, self._apis), key=len, reverse=True))
        self._prefix = re.compile(rf"({prefixes})(?:/|\Z)") if self._apis else None

    def api_of(self, path: str) -> ForeignApi | None:
        """Return the foreign API that a path belongs to; None for the server's own."""
        found = self._prefix.match(path) if self._prefix is not None else None
        return self._apis[found[1]] if found else None


def request_body(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    """Return the `openapi_extra` of a route that requires a body with this schema and media type."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}
