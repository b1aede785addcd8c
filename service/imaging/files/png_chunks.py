"""Rules for the chunks of a PNG: which may come, how often and in which order. No pixels are decoded.

The chunks are yielded lazily, as in containers.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from service.core.errors import InvalidImage
from service.imaging.files.containers import MAX_CHUNKS, Chunk, chunk_name

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_CRITICAL = frozenset((b"IHDR", b"PLTE", b"IDAT", b"IEND"))
_PNG_BEFORE_DATA = frozenset((b"PLTE", b"tRNS"))
"""Chunk types that may occur once at most, and only before the first IDAT."""
_PNG_ORDERED = _PNG_BEFORE_DATA | {b"IDAT"}


def png_chunks(data: bytes) -> Iterator[Chunk]:
    """The chunks of a PNG, IHDR to IEND; what follows IEND is ignored. CRCs are not checked.

    Raises:
        InvalidImage: a chunk ends beyond the end of the file, IEND is missing, or there are too many chunks.
    """
    position = len(PNG_SIGNATURE)
    for _ in range(MAX_CHUNKS):
        if position + 12 > len(data):
            raise InvalidImage("the PNG is truncated: it ends before its IEND chunk; send the whole file")
        length, kind = struct.unpack_from(">I4s", data, position)
        chunk = Chunk(kind, position + 8, position + 8 + length)
        if chunk.end + 4 > len(data):
            raise InvalidImage(f"the PNG is truncated inside its {chunk_name(kind)} chunk; send the whole file")
        yield chunk
        if kind == b"IEND":
            return
        position = chunk.end + 4
    raise InvalidImage(f"the PNG has more than {MAX_CHUNKS} chunks")


def ordered_png_chunks(data: bytes) -> Iterator[Chunk]:
    """The chunks of a PNG as in `png_chunks`, with the checks that a decoder must make (PNG, 3rd edition, 5.3 to 5.6).

    Decoders disagree about files that fail these checks: some refuse them, others show another picture.

    Raises:
        InvalidImage: as `png_chunks`, and: a chunk type is not of four letters or is critical and unknown; the IDAT
            chunks are not consecutive; PLTE or tRNS comes twice or after IDAT.
    """
    previous, had = b"", set[bytes]()
    for chunk in png_chunks(data):
        kind = chunk.kind
        if not kind.isalpha():
            raise InvalidImage(f"the PNG is corrupt: {chunk_name(kind)!r} is not a chunk type")
        if kind[:1].isupper() and kind not in _PNG_CRITICAL:
            raise InvalidImage(
                f"the PNG has an unknown critical chunk {chunk_name(kind)}; save it again as a plain PNG"
            )
        if kind == b"IDAT" and kind in had and previous != kind:
            raise InvalidImage(f"the PNG's pixels are interrupted by a {chunk_name(previous)} chunk; save it again")
        if kind in _PNG_BEFORE_DATA and had & {kind, b"IDAT"}:
            raise InvalidImage(f"the PNG's {chunk_name(kind)} chunk occurs twice or after the pixels; save it again")
        if kind in _PNG_ORDERED:
            had.add(kind)
        previous = kind
        yield chunk
