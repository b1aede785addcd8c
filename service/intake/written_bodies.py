"""Bodies of responses with pictures, written in pieces: JSON and multipart/mixed.

A single call on the whole of a picture would keep Python's other threads waiting, and with them the event loop: 0.8 s
for the text of a picture of 20 MB in `json.dumps`.
"""

from __future__ import annotations

import binascii
import hashlib
import json
from collections.abc import Iterable
from io import BytesIO
from typing import BinaryIO

from service.core.reply import Reply

_PIECE_BYTES = 3 << 16
"""Bytes of a picture that are written at a time: a multiple of 3, so that their base64 needs no padding."""
_PLACEHOLDER, _PLACEHOLDER_TEXT = {"\0": 0}, b'{"\\u0000":0}'
"""A value that stands for a file while JSON is made, and its text, which no string can contain: quotes are escaped."""


def json_body(content: object) -> bytes:
    """Return JSON in ASCII, in which each value of type `bytes` is a string in base64; errors as from `write_json`."""
    out = BytesIO()
    write_json(out, content)
    return out.getvalue()


def write_json(out: BinaryIO, content: object) -> None:
    """Write JSON as `json_body` returns it.

    Raises:
        TypeError, ValueError: a value has no form in JSON, such as a set or NaN; nothing has been written.
    """
    files: list[bytes] = []

    def hold(value: object) -> dict[str, int]:
        if not isinstance(value, bytes):
            raise TypeError(f"{type(value).__name__} has no form in JSON")
        files.append(value)
        return _PLACEHOLDER

    text = json.dumps(content, default=hold, allow_nan=False, separators=(",", ":")).encode("ascii")
    first, *others = text.split(_PLACEHOLDER_TEXT)
    out.write(first)
    for file, following in zip(files, others, strict=True):
        out.write(b'"')
        for piece in _pieces(file):
            out.write(binascii.b2a_base64(piece, newline=False))
        out.write(b'"' + following)


def multipart_body(reply: Reply) -> tuple[str, bytes]:
    """Return boundary and body; the boundary is a digest of the pictures, so none of them can contain it."""
    out = BytesIO()
    return write_multipart(out, reply), out.getvalue()


def write_multipart(out: BinaryIO, reply: Reply) -> str:
    """Write a body as `multipart_body` returns it, and return its boundary."""
    digest = hashlib.sha256()
    for picture in reply.pictures:
        digest.update(picture.body)
    boundary = digest.hexdigest()
    for picture in reply.pictures:
        location = f"Location: {url}\r\n" if (url := picture.url) else ""
        head = f"--{boundary}\r\nContent-Type: {reply.media_type}\r\nContent-Length: {len(picture.body)}\r\n{location}"
        out.write(f"{head}\r\n".encode("ascii"))
        for piece in _pieces(picture.body):
            out.write(piece)
        out.write(b"\r\n")
    out.write(f"--{boundary}--\r\n".encode("ascii"))
    return boundary


def _pieces(file: bytes) -> Iterable[memoryview]:
    """Return a file in pieces of `_PIECE_BYTES`, the last one smaller; without copies."""
    whole = memoryview(file)
    return (whole[start : start + _PIECE_BYTES] for start in range(0, len(file), _PIECE_BYTES))
