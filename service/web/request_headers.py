"""Parsers of request headers: format, JSON or image, asynchrony, deadline, priority and request id. Pure."""

from __future__ import annotations

import math
import re

from starlette.datastructures import Headers

from service.core.errors import InvalidOption, UnsupportedType
from service.core.flow import NORMAL_PRIORITY, PRIORITY_NAMES
from service.core.pictures import ImageFormat

_FORMAT_OF: dict[str, ImageFormat] = {"image/png": "png", "image/jpeg": "jpeg", "image/webp": "webp"}
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
MAX_TIMEOUT_MS = 86_400_000.0


def preferred_types(accept: str) -> list[str]:
    """The media types of an Accept header, most wanted first; refused ones (q=0) are left out (RFC 9110 §12.5.1)."""
    ranked: list[tuple[float, str]] = []
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        weight = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        quality = float(weight) if re.fullmatch(r"[01](\.\d{0,3})?", weight) else 0.0
        if name and quality > 0:
            ranked.append((quality, name))
    return [name for _, name in sorted(ranked, key=lambda pair: -pair[0])]


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


def wanted_format(accept: str) -> ImageFormat:
    """The supported image format that the Accept header prefers; png if it names none."""
    return next((_FORMAT_OF[name] for name in preferred_types(accept) if name in _FORMAT_OF), "png")


def joined_lines(headers: Headers, name: str) -> str:
    """All lines of a header as one list (RFC 9110 §5.3)."""
    return ",".join(headers.getlist(name))


def single_value(headers: Headers, name: str) -> str | None:
    """The value of a header that may occur only once; None without it.

    Raises:
        InvalidOption: it is sent more than once.
    """
    values = headers.getlist(name)
    if len(values) > 1:
        raise InvalidOption(f"{name} is sent {len(values)} times; send it once")
    return values[0] if values else None


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
    return any(p.split(";")[0].strip().lower() == "respond-async" for p in prefer.split(","))


def asked_timeout_s(text: str | None) -> float | None:
    """The client's timeout in seconds, from X-Request-Timeout-Ms; None without the header.

    Raises:
        InvalidOption: it is not a positive number of milliseconds, or is over a day.
    """
    if text is None:
        return None
    timeout_ms = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidOption(f"X-Request-Timeout-Ms is {text[:40]!r}; send milliseconds in (0, {MAX_TIMEOUT_MS:.0f}]")
    return timeout_ms / 1e3


def asked_priority(text: str | None) -> int:
    """The priority from X-Priority, 0 (last) to 9 (first); the normal one without the header.

    Raises:
        InvalidOption: it is neither a name nor a digit.
    """
    if text is None:
        return NORMAL_PRIORITY
    named = PRIORITY_NAMES.get(text.strip().lower())
    if named is not None:
        return named
    if not re.fullmatch(r"[0-9]", text.strip()):
        raise InvalidOption(f"X-Priority is {text[:40]!r}; send {', '.join(PRIORITY_NAMES)}, or 0 (last) to 9 (first)")
    return int(text)


def acceptable_request_id(text: str | None) -> str | None:
    """The client's X-Request-ID if it is safe to log and send back; None otherwise."""
    return text if text and _REQUEST_ID.fullmatch(text) else None
