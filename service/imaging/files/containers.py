"""Parsers of the containers of JPEG and WebP files; they decode no pixels. PNG: png_chunks.py.

Each yields `Chunk`s lazily, in file order, after checking that they lie inside the file. They take linear time, copy
nothing, never allocate what a file merely claims, and limit the number of chunks.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from service.core.errors import InvalidImage

MAX_CHUNKS = 65_536
"""Limit of chunks: encoders write far fewer (8,192 for 64 MiB in libpng's 8 KiB pieces), and parsing takes 50 ms."""

_FILL = re.compile(rb"\xff+")
_STANDALONE = frozenset((0x01, *range(0xD0, 0xD8)))
SOS, EOI = 0xDA, 0xD9
JPEG_PROFILE = b"ICC_PROFILE\0"
"""First bytes of an APP2 segment with a part of a colour profile."""


class Chunk(NamedTuple):
    """One piece of a file: its payload is `data[start:end]`.

    kind: a PNG or WebP four-character code, or a JPEG marker as one byte.
    """

    kind: bytes
    start: int
    end: int


def webp_chunks(data: bytes) -> Iterator[Chunk]:
    """The chunks of a WebP file, inside the length that its RIFF header gives.

    Raises:
        InvalidImage: the file is shorter than its RIFF header says, a chunk ends beyond it, or there are too many.
    """
    end = 8 + struct.unpack_from("<I", data, 4)[0]
    if end > len(data):
        raise InvalidImage(f"the WebP is truncated: {end} bytes by its header, {len(data)} sent; send the whole file")
    position = 12
    for _ in range(MAX_CHUNKS):
        if position + 8 > end:
            return
        kind, length = struct.unpack_from("<4sI", data, position)
        chunk = Chunk(kind, position + 8, position + 8 + length)
        if chunk.end > end:
            raise InvalidImage(f"the WebP's {chunk_name(kind)} chunk is longer than the file")
        yield chunk
        position = chunk.end + length % 2
    raise InvalidImage(f"the WebP has more than {MAX_CHUNKS} chunks")


def jpeg_segments(data: bytes) -> Iterator[Chunk]:
    """The segments of a JPEG before its first scan, and the header of that scan (SOS) as the last one.

    Raises:
        InvalidImage: a marker is missing, a segment ends beyond the file, the file ends before its first scan, or there
            are too many segments.
    """
    position, size = 2, len(data)
    for _ in range(MAX_CHUNKS):
        if position + 1 < size and data[position] == 0xFF != data[position + 1]:
            position += 2
        else:
            position = _after_filled_marker(data, position)
        marker = data[position - 1]
        if marker in _STANDALONE:
            continue
        if marker == EOI or position + 2 > size:
            raise InvalidImage("the JPEG is truncated: it ends before its first scan; send the whole file")
        length = data[position] << 8 | data[position + 1]
        end = position + length
        if length < 2 or end > size:
            raise InvalidImage(f"the JPEG is truncated or broken in its segment 0x{marker:02x}; send the whole file")
        yield Chunk(data[position - 1 : position], position + 2, end)
        if marker == SOS:
            return
        position = end
    raise InvalidImage(f"the JPEG has more than {MAX_CHUNKS} segments")


def _after_filled_marker(data: bytes, position: int) -> int:
    """Return the position after the marker at `position`, which fill bytes of 0xFF may precede.

    Raises:
        InvalidImage: there is no marker.
    """
    fill = _FILL.match(data, position)
    if fill is None or fill.end() >= len(data):
        reason = "is truncated" if position + 1 >= len(data) else f"has no marker at byte {position}"
        raise InvalidImage(f"the JPEG {reason}, before its first scan")
    return fill.end() + 1


def chunk_name(kind: bytes) -> str:
    """The type of a PNG or WebP chunk as text, for messages."""
    return kind.decode("ascii", "backslashreplace")
