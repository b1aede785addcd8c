"""The header fields of a request, and parsers for them: format, JSON or image, asynchrony. Pure.

Parsers that gRPC uses, too, are in intake/request_metadata.py.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

from service.core.errors import UnsupportedType
from service.core.pictures import ImageFormat

_MAX_CACHED_LENGTH = 256
"""Largest length in characters of an Accept header whose types are cached, as clients repeat the same header."""
_FORMAT_OF: dict[str, ImageFormat] = {"image/png": "png", "image/jpeg": "jpeg", "image/webp": "webp"}


class RequestHead(Headers):
    """The header fields of a request, indexed by name once; Starlette's `Headers` searches all fields at each access.

    The outermost middleware puts it into the request's state, for all later readers of the header.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__(raw=scope["headers"])
        self._by_name: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            self._by_name.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))

    @classmethod
    def of(cls, scope: Scope) -> RequestHead:
        """Return the head in a request's state."""
        head: RequestHead = scope["state"]["head"]
        return head

    def __getitem__(self, key: str) -> str:
        return self._by_name[key.lower()][0]

    def __contains__(self, key: Any) -> bool:
        return key.lower() in self._by_name

    def get(self, key: str, default: Any = None) -> Any:
        """Return the first value of a field; `default` without one."""
        values = self._by_name.get(key.lower())
        return values[0] if values else default

    def getlist(self, key: str) -> list[str]:
        """Return the values of all lines of a field."""
        return list(self._by_name.get(key.lower(), ()))


def preferred_types(accept: str) -> tuple[str, ...]:
    """Return an Accept header's media types, most preferred first, without refused ones (q=0; RFC 9110 §12.5.1)."""
    return _remembered_types(accept) if len(accept) <= _MAX_CACHED_LENGTH else _parse_types(accept)


def _parse_types(accept: str) -> tuple[str, ...]:
    ranked: list[tuple[float, str]] = []
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        weight = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        quality = float(weight) if re.fullmatch(r"[01](\.\d{0,3})?", weight) else 0.0
        if name and quality > 0:
            ranked.append((quality, name))
    return tuple(name for _, name in sorted(ranked, key=lambda pair: -pair[0]))


_remembered_types = lru_cache(maxsize=128)(_parse_types)


def wants_json(accept: str) -> bool:
    """Return whether JSON is preferred to an image."""
    for name in preferred_types(accept):
        if name == "application/json":
            return True
        if name in _FORMAT_OF or name in ("*/*", "image/*"):
            return False
    return False


def wants_multipart(accept: str) -> bool:
    """Return whether multipart/mixed is preferred to JSON for several results."""
    for name in preferred_types(accept):
        if name in ("multipart/mixed", "multipart/*"):
            return True
        if name == "application/json":
            return False
    return False


def wants_openmetrics(accept: str) -> bool:
    """Return whether OpenMetrics is preferred to Prometheus's older text format for metrics."""
    known = (name for name in preferred_types(accept) if name in ("application/openmetrics-text", "text/plain"))
    return next(known, "") == "application/openmetrics-text"


def wanted_form(accept: str, *, several: bool) -> str:
    """Return the media range of the response form that the Accept header prefers; `*/*` for the default form.

    The default form is a file for one picture, and JSON for several.
    """
    if several:
        return "multipart/mixed" if wants_multipart(accept) else "*/*"
    return "application/json" if wants_json(accept) else "*/*"


def wanted_format(accept: str) -> ImageFormat:
    """Return the supported image format that the Accept header prefers; png if it names none."""
    return next((_FORMAT_OF[name] for name in preferred_types(accept) if name in _FORMAT_OF), "png")


def joined_lines(headers: Headers, name: str) -> str:
    """Return all lines of a header field as one comma-separated list (RFC 9110 §5.3)."""
    return ",".join(headers.getlist(name))


def etag_matches(if_none_match: str, etag: str) -> bool:
    """Return whether an If-None-Match header matches the entity tag (weak comparison, RFC 9110 §13.1.2; `*`: any)."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or tags == ["*"]


def check_json(headers: Headers) -> None:
    """Check that a body is declared as JSON, which another site's form cannot do; for routes that read JSON.

    Raises:
        UnsupportedType: the Content-Type is missing, repeated or not JSON.
    """
    kinds = [kind.partition(";")[0].strip().lower() for kind in headers.getlist("content-type")]
    if kinds != ["application/json"]:
        raise UnsupportedType(f"the body is {', '.join(kinds) or 'of no type'}; send Content-Type: application/json")


def wants_job(prefer: str) -> bool:
    """Return whether a Prefer header requests `respond-async` (RFC 7240)."""
    return bool(prefer) and any(p.split(";")[0].strip().lower() == "respond-async" for p in prefer.split(","))
