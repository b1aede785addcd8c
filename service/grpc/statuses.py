"""Converts our errors to gRPC statuses, and to trailing metadata for programs. Pure."""

from __future__ import annotations

from grpc import StatusCode

from service.core.errors import Overloaded, ServiceError
from service.intake.reply_facts import whole_seconds_to_return

Trailing = tuple[tuple[str, str], ...]
"""Trailing metadata: names in lower case, and values in ASCII."""
_MAX_CHARACTERS = 1024
"""Longest message; clients take 8 KiB of metadata in all."""
_CODES = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    405: StatusCode.UNIMPLEMENTED,
    408: StatusCode.DEADLINE_EXCEEDED,
    409: StatusCode.ABORTED,
    410: StatusCode.NOT_FOUND,
    413: StatusCode.INVALID_ARGUMENT,
    415: StatusCode.INVALID_ARGUMENT,
    422: StatusCode.INVALID_ARGUMENT,
    429: StatusCode.RESOURCE_EXHAUSTED,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}
"""Codes by the HTTP status of an error; any other is INTERNAL."""


def status_of(error: ServiceError) -> tuple[StatusCode, str]:
    """Return the code and the message of an error."""
    if isinstance(error, Overloaded):  # a drain or a start, of the same status, is UNAVAILABLE
        return StatusCode.RESOURCE_EXHAUSTED, _shortened(str(error))
    return _CODES.get(error.status, StatusCode.INTERNAL), _shortened(str(error))


def trailing_of(error: ServiceError) -> Trailing:
    """Return the metadata of an error: its code, and when to retry if that is known.

    gRPC's own retries obey `grpc-retry-pushback-ms` (gRFC A6); `retry-after` has whole seconds as in HTTP.
    """
    code = ("x-error-code", error.code)
    seconds = whole_seconds_to_return(error)
    if seconds is None:
        return (code,)
    return code, ("retry-after", str(seconds)), ("grpc-retry-pushback-ms", str(seconds * 1000))


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
