"""The header fields of a request, and parsers of them: format, JSON or image, asynchrony. Pure.

Those that gRPC has, too, are in intake/request_metadata.py.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

from service.core.errors import UnsupportedType
from service.core.pictures import ImageFormat

_LONGEST_REMEMBERED = 256
"""Characters of an Accept header up to which its types are remembered: a client sends the same one again and again."""
_FORMAT_OF: dict[str, ImageFormat] = {"image/png": "png", "image/jpeg": "jpeg", "image/webp": "webp"}


class RequestHead(Headers):
    """The header fields of a request, sorted by name once; `Headers` goes through all of them at every question.

    The outermost middleware puts it into the request's state, for all that read the header after it.
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
    """The media types of an Accept header, most wanted first; refused ones (q=0) are left out (RFC 9110 §12.5.1)."""
    return _remembered_types(accept) if len(accept) <= _LONGEST_REMEMBERED else _parse_types(accept)


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
    """Whether JSON is wanted rather than an image."""
    for name in preferred_types(accept):
        if name == "application/json":
            return True
        if name in _FORMAT_OF or name in ("*/*", "image/*"):
            return False
    return False


def wants_multipart(accept: str) -> bool:
    """Whether several results are wanted as multipart/mixed rather than as JSON."""
    for name in preferred_types(accept):
        if name in ("multipart/mixed", "multipart/*"):
            return True
        if name == "application/json":
            return False
    return False


def wants_openmetrics(accept: str) -> bool:
    """Whether metrics are wanted in OpenMetrics rather than in Prometheus' older text format."""
    known = (name for name in preferred_types(accept) if name in ("application/openmetrics-text", "text/plain"))
    return next(known, "") == "application/openmetrics-text"


def wanted_form(accept: str, *, several: bool) -> str:
    """The media range that stands for the response form that the Accept header asks for; `*/*` for the usual form.

    The usual form is a file for one picture, JSON for several.
    """
    if several:
        return "multipart/mixed" if wants_multipart(accept) else "*/*"
    return "application/json" if wants_json(accept) else "*/*"


def wanted_format(accept: str) -> ImageFormat:
    """The supported image format that the Accept header prefers; png if it names none."""
    return next((_FORMAT_OF[name] for name in preferred_types(accept) if name in _FORMAT_OF), "png")


def joined_lines(headers: Headers, name: str) -> str:
    """All lines of a header as one list (RFC 9110 §5.3)."""
    return ",".join(headers.getlist(name))


def etag_matches(if_none_match: str, etag: str) -> bool:
    """Whether an If-None-Match header matches the entity tag, compared weakly (RFC 9110 §13.1.2); `*` matches any."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or tags == ["*"]


def check_json(headers: Headers) -> None:
    """Check that a body is declared as JSON, which no form of another site can do; for routes that read JSON.

    Raises:
        UnsupportedType: the Content-Type is another, or missing, or sent more than once.
    """
    kinds = [kind.partition(";")[0].strip().lower() for kind in headers.getlist("content-type")]
    if kinds != ["application/json"]:
        raise UnsupportedType(f"the body is {', '.join(kinds) or 'of no type'}; send Content-Type: application/json")


def wants_job(prefer: str) -> bool:
    """Whether a Prefer header asks for `respond-async` (RFC 7240)."""
    return bool(prefer) and any(p.split(";")[0].strip().lower() == "respond-async" for p in prefer.split(","))
