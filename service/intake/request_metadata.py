"""Parsers of a request's metadata, from HTTP headers or gRPC metadata: its id, timeout and priority.

Pure.
"""

from __future__ import annotations

import math
import re

from service.auth.clients import HeaderLines
from service.core.errors import InvalidOption
from service.core.flow import NORMAL_PRIORITY, PRIORITY_NAMES

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
MAX_TIMEOUT_MS = 86_400_000.0


def single_value(headers: HeaderLines, name: str) -> str | None:
    """The value of a header that may occur only once; None without it.

    Raises:
        InvalidOption: the header is sent more than once.
    """
    values = headers.getlist(name)
    if len(values) > 1:
        raise InvalidOption(f"{name} is sent {len(values)} times; send it once")
    return values[0] if values else None


def parse_timeout_s(text: str | None) -> float | None:
    """The client's timeout in seconds, from X-Request-Timeout-Ms; None without the header.

    Raises:
        InvalidOption: the header is not a positive number of milliseconds, or over a day.
    """
    if text is None:
        return None
    timeout_ms = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidOption(f"X-Request-Timeout-Ms is {text[:40]!r}; send milliseconds in (0, {MAX_TIMEOUT_MS:.0f}]")
    return timeout_ms / 1e3


def parse_priority(text: str | None) -> int:
    """The priority from X-Priority, 0 (last) to 9 (first); the normal one without the header.

    Raises:
        InvalidOption: the header is neither one of `PRIORITY_NAMES` nor a digit.
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
