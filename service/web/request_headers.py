"""The header fields of a request, and parsers for them: format, JSON or image, asynchrony. Pure.

Parsers that gRPC uses, too, are in intake/request_metadata.py.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, NamedTuple

from starlette.datastructures import Headers
from starlette.types import Scope

from service.core.errors import UnsupportedType
from service.core.pictures import ImageFormat

_MAX_CACHED_LENGTH = 256
"""Largest length in characters of an Accept header whose types are cached, as clients repeat the same header."""
_REFUSED = (0.0, math.inf)
"""Rank of a type that the Accept header refuses. A rank is minus the weight, -1 to 0, and the place in the header."""
_UNNAMED = (-0.0005, math.inf)
"""Rank of a type that no range of the header matches: after all accepted ones, before refused ones."""
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


class _Preferences(NamedTuple):
    """Preferences of an Accept header (RFC 9110 §12.5.1)."""

    types: tuple[str, ...]
    json: bool
    multipart: bool
    format: ImageFormat


def _parse_accept(accept: str) -> _Preferences:
    ranges: dict[str, tuple[float, float]] = {}
    for place, item in enumerate(accept.split(",")):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        weight = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        quality = float(weight) if re.fullmatch(r"[01](\.\d{0,3})?", weight) else 0.0
        if name:
            ranges.setdefault(name, (-quality, place) if quality else _REFUSED)

    def rank(media_type: str) -> tuple[float, float]:
        return next((ranges[one] for one in _ranges_with(media_type) if one in ranges), _UNNAMED)

    def rank_of_format(media_type: str) -> tuple[float, bool, float]:
        weight, place = rank(media_type)
        return weight, media_type not in ranges, place

    return _Preferences(
        tuple(sorted((name for name in ranges if ranges[name] != _REFUSED), key=ranges.__getitem__)),
        json=rank("application/json") < min(map(rank, _FORMAT_OF)),
        multipart=rank("multipart/mixed") < rank("application/json"),
        format=_FORMAT_OF[min(_FORMAT_OF, key=rank_of_format)],
    )


def _ranges_with(media_type: str) -> tuple[str, str, str]:
    """Return the ranges that match a type, most specific first; the first that a header has decides.

    So `image/png;q=0, */*` refuses PNG.
    """
    return media_type, f"{media_type.partition('/')[0]}/*", "*/*"


_remembered_preferences = lru_cache(maxsize=128)(_parse_accept)


def _preferences_of(accept: str) -> _Preferences:
    return _remembered_preferences(accept) if len(accept) <= _MAX_CACHED_LENGTH else _parse_accept(accept)


def preferred_types(accept: str) -> tuple[str, ...]:
    """Return an Accept header's media types, most preferred first, without refused ones (q=0)."""
    return _preferences_of(accept).types


def wants_json(accept: str) -> bool:
    """Return whether JSON is preferred to an image; of two equal ones, the first in the header is."""
    return _preferences_of(accept).json


def wants_multipart(accept: str) -> bool:
    """Return whether multipart/mixed is preferred to JSON for several results."""
    return _preferences_of(accept).multipart


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
    """Return the image format that the Accept header prefers; of equal ones one that it names, then png."""
    return _preferences_of(accept).format


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
