"""Byte ranges of a stored file that a request may ask for (RFC 9110 §14). Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from service.core.errors import RangeNotSatisfiable

_ONE_RANGE = re.compile(r"\s*bytes\s*=\s*([0-9]{0,19})-([0-9]{0,19})\s*", re.IGNORECASE)


class ByteRange(NamedTuple):
    """Bytes `first` to `last`, both included, of a file of `size` bytes."""

    first: int
    last: int
    size: int

    @property
    def content_range(self) -> str:
        """The value of a Content-Range header."""
        return f"bytes {self.first}-{self.last}/{self.size}"

    def cut(self, body: bytes) -> bytes:
        """Return the bytes of the range."""
        return body[self.first : self.last + 1]


def wanted_range(header: str | None, if_range: str | None, etag: str, size: int) -> ByteRange | None:
    """Return the requested range; None if the whole file must be sent.

    The whole file is sent for several ranges, another unit, a malformed range, and an `If-Range` with another entity
    tag or with a date, as results have no modification date.

    Args:
        header: the Range header.
        if_range: the If-Range header.
        etag: the strong entity tag of the file.
        size: the size of the file in bytes.

    Raises:
        RangeNotSatisfiable: the range lies outside the file.
    """
    asked = _ONE_RANGE.fullmatch(header or "")
    if asked is None or asked[1] == asked[2] == "" or (if_range is not None and if_range.strip() != etag):
        return None
    first, last = asked[1], asked[2]
    if not first:  # a suffix range: the last `last` bytes
        start, end = max(0, size - int(last)), size - 1
    else:
        start, end = int(first), min(int(last or size), size - 1)
        if last and int(last) < start:
            return None  # malformed, RFC 9110 §14.1.1
    if start >= size:
        raise RangeNotSatisfiable(size)
    return ByteRange(start, end, size)
