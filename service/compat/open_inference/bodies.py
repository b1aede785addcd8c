"""Reads the body of an inference request: unpacks gzip and deflate within limits, and finds the end of its JSON."""

from __future__ import annotations

import asyncio
import zlib

from service.compat.json_fields import JSON_TYPE
from service.core.errors import InvalidRequest, TooLarge, UnsupportedType
from service.intake.request_metadata import single_value
from service.web.form import media_type
from service.web.intake import HttpIntake
from service.web.request_headers import joined_lines

LENGTH_HEADER = "Inference-Header-Content-Length"
_BINARY_SIZE = b'"binary_data_size"'
_TAIL_BYTES = 64
_TYPES = ("", JSON_TYPE, "application/octet-stream")
_PACKED = ("gzip", "deflate")
_ANY_FORMAT = zlib.MAX_WBITS | 32
"""zlib's window size for the gzip and zlib formats, recognised by their headers."""
_PIECE_BYTES = 1 << 20
"""Most bytes that are unpacked without a pause for other requests."""


async def read_body(intake: HttpIntake) -> bytearray:
    """Read and unpack a body; each piece is counted before the next is unpacked.

    Raises:
        UnsupportedType: another media type or Content-Encoding.
        TooLarge: the body is larger than the limit, as it arrives or unpacked.
        InvalidRequest: the packed data is broken.
        Overloaded, Cancelled: as `HttpIntake.stream`.
    """
    if media_type(intake.request) not in _TYPES:
        raise UnsupportedType(f"send {JSON_TYPE} or application/octet-stream, not {media_type(intake.request)[:80]!r}")
    encoding = joined_lines(intake.request.headers, "content-encoding").strip().lower()
    if encoding not in ("", "identity", *_PACKED):
        raise UnsupportedType(
            f"Content-Encoding {encoding[:80]!r}; send gzip, deflate or none", code="unsupported_encoding"
        )
    body = bytearray()
    unpacker = _Unpacker(intake, body) if encoding in _PACKED else None
    async for chunk in intake.stream():
        if unpacker is None:
            body += chunk
        else:
            await unpacker.feed(chunk)
    if unpacker is not None:
        unpacker.finish()
    return body


def json_length(intake: HttpIntake, body: bytearray) -> int:
    """Return the length of the JSON at the start of the body, in bytes; tensors follow it.

    Raises:
        InvalidRequest: the header that gives the length is not a number, or larger than the body; or it is missing
            although something follows the JSON.
    """
    text = single_value(intake.request.headers, LENGTH_HEADER)
    if text is None:
        if not body[-_TAIL_BYTES:].rstrip().endswith(b"}") and _BINARY_SIZE in body:
            why = f"binary data follows the JSON, but the header {LENGTH_HEADER} is missing"
            raise InvalidRequest(f"{why}; send the JSON's length in it, and check that no proxy removes it")
        return len(body)
    length = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else -1
    if not 0 <= length <= len(body):
        advice = "send the length of the JSON in bytes, without the binary data that follows it"
        raise InvalidRequest(f"{LENGTH_HEADER} is {text[:40]!r} and the body has {len(body)} bytes; {advice}")
    return length


class _Unpacker:
    """Unpacks a stream into `body`, never more than the limit of a body."""

    def __init__(self, intake: HttpIntake, body: bytearray) -> None:
        self._intake, self._body = intake, body
        self._packed = zlib.decompressobj(_ANY_FORMAT)

    async def feed(self, chunk: bytes) -> None:
        rest = chunk
        while rest:
            try:
                piece = self._packed.decompress(rest, _PIECE_BYTES)
            except zlib.error as error:
                raise InvalidRequest(f"the compressed body is corrupt: {error}") from error
            if len(self._body) + len(piece) > self._intake.max_body_bytes:
                raise TooLarge(f"the body decompresses to more than {self._intake.max_body_bytes / 2**20:.0f} MiB")
            self._intake.count_bytes(len(piece))
            self._body += piece
            rest = self._packed.unconsumed_tail
            if self._packed.unused_data:
                raise InvalidRequest("data follows the compressed body; send one stream")
            if rest:
                await asyncio.sleep(0)

    def finish(self) -> None:
        """Check that the stream was complete."""
        if not self._packed.eof:
            raise InvalidRequest("the compressed body is truncated; send all of it")
