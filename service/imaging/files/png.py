"""Decoding and encoding of PNG files.

Decoders get only the chunks that hold pixels, after their CRCs were checked: no text, profile or animation chunk.
Buffers are freed as early as possible; decode_cost.py counts the peak.

The data are inflated and checked first. Filters are undone in C++ (png_filters.py). If the file is interlaced or that
extension is missing, OpenCV gets the data uncompressed; unchecked, its libpng would print warnings to stderr. Pillow
decodes palettes, less than 8 bits, and 8-bit data that fail the check. Pillow accepts data with too many rows, which
is allowed, but also with too few, so the length of a file whose last row is black is checked.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from io import BytesIO
from types import MappingProxyType
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from service.core.errors import InvalidImage
from service.core.pictures import Pixels
from service.imaging.files.containers import Chunk
from service.imaging.files.deflate import FASTEST, Deflate, inflate
from service.imaging.files.header import Header
from service.imaging.files.png_chunks import PNG_SIGNATURE, png_chunks
from service.imaging.files.png_filters import installed_kernel as installed_filters
from service.imaging.files.scanlines import Strip, filter_rows, installed_kernel, join_adlers, png_strips
from service.imaging.pool.parallel_steps import DeferredStep, StepRunner, results_of, run_sequentially

_ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
"""First row, first column, row step and column step of each pass of an interlaced PNG."""
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
_PIECE = 1 << 20
_STORED_BLOCK = 65_535
_JOINED_AT_ONCE = 2 << 20
"""Bytes that `bytes.join` copies in 0.2 ms while it holds the GIL; 400 MB would take 0.5 s."""


def decode_png(data: bytes, header: Header, by: Deflate = FASTEST) -> Pixels:
    """Decode pixels as stored: H×W×C, C = 1, 2 (grey, alpha), 3 or 4 (RGB, alpha), uint8, or uint16 for 16 bits.

    Raises:
        InvalidImage: truncated or corrupt.
    """
    chunks = list(png_chunks(data))
    _check_crcs(data, chunks, by)
    pixels = _decode_samples(data, chunks, header, by)
    if header.colour == "palette" or header.alpha:
        return pixels
    transparent = next((data[c.start : c.end] for c in chunks if c.kind == b"tRNS"), None)
    return pixels if transparent is None else _add_transparent_colour(pixels, transparent, header.bits)


def decode_indices(data: bytes, header: Header) -> Pixels:
    """Decode the indices of a palette PNG, or the values of a grey one, as stored: H×W, 0 to 2^bits - 1.

    Raises:
        InvalidImage: truncated or corrupt.
    """
    chunks = list(png_chunks(data))
    _check_crcs(data, chunks, FASTEST)
    if header.colour == "palette":
        return _decode_by_pillow(_keep_pixel_chunks(data, chunks, header), header, as_indices=True)[:, :, 0]
    values = _decode_samples(data, chunks, header, FASTEST)[:, :, 0]
    return values if header.bits >= 8 else values // np.uint8(255 // (2**header.bits - 1))


def encode_png(
    pixels: Pixels,
    profile: bytes | None,
    by: Deflate = FASTEST,
    run_steps: StepRunner = run_sequentially,
    ahead: Mapping[range, DeferredStep[Strip]] = MappingProxyType({}),
) -> bytes:
    """Encode pixels losslessly: H×W×C, C = 1, 2, 3 or 4, uint8 or uint16. `ahead` has some strips, by their rows.

    Written here because neither library writes all eight kinds: OpenCV lacks grey with alpha, Pillow 16-bit colour.
    Photographs of 8 bits are packed in C++ (scanlines.py) if it was compiled; everything else is packed by `by`.
    """
    height, width, channels = pixels.shape
    samples = pixels if pixels.dtype == np.uint8 else pixels.astype(">u2")
    rows = np.ascontiguousarray(samples).view(np.uint8).reshape(height, -1)
    ihdr = struct.pack(">IIBBBBB", width, height, pixels.itemsize * 8, _COLOUR_TYPES[channels], 0, 0, 0)
    head = [PNG_SIGNATURE, *_chunk_pieces(b"IHDR", ihdr, by)]
    if profile is not None:
        head += _chunk_pieces(b"iCCP", b"ICC profile\0\0" + zlib.compress(profile), by)
    found = png_strips(pixels, installed_kernel(), by)
    packed = results_of(list({**found, **ahead}.values()), run_steps) if found else []
    body = _strip_chunks(packed, by) if packed else _whole_chunk(rows, by)
    return b"".join((*head, *body, *_chunk_pieces(b"IEND", b"", by)))


def _whole_chunk(rows: NDArray[np.uint8], by: Deflate) -> tuple[bytes, bytes, bytes]:
    return _chunk_pieces(b"IDAT", by.compress(filter_rows(rows, [range(len(rows))])), by)


def _strip_chunks(packed: list[Strip], by: Deflate) -> list[bytes | memoryview]:
    """A chunk for each strip; together their contents are one zlib stream (RFC 1950)."""
    pieces: list[bytes | memoryview] = []
    adler = 1
    for number, strip in enumerate(packed):
        adler = join_adlers(adler, strip.adler, strip.size)
        begin = b"\x78\x01" if number == 0 else b""
        end = struct.pack(">I", adler) if number == len(packed) - 1 else b""
        content: tuple[bytes | memoryview, ...] = (b"IDAT" + begin, strip.packed, end)
        crc = 0
        for part in content:
            crc = by.crc32(part, crc)
        pieces += [struct.pack(">I", len(begin) + len(strip.packed) + len(end)), *content, struct.pack(">I", crc)]
    return pieces


def _chunk_pieces(kind: bytes, body: bytes, by: Deflate) -> tuple[bytes, bytes, bytes]:
    return struct.pack(">I4s", len(body), kind), body, struct.pack(">I", by.crc32(body, by.crc32(kind)))


def _check_crcs(data: bytes, chunks: list[Chunk], by: Deflate) -> None:
    view = memoryview(data)
    for chunk in chunks:
        if by.crc32(view[chunk.start - 4 : chunk.end]) != struct.unpack_from(">I", data, chunk.end)[0]:
            name = chunk.kind.decode("ascii", "backslashreplace")
            raise InvalidImage(f"the PNG is corrupt: the checksum of its {name} chunk is wrong")


def _keep_pixel_chunks(data: bytes, chunks: list[Chunk], header: Header) -> bytes:
    """A PNG with only the chunks that hold pixels."""
    kept = {b"IHDR", b"IDAT", b"IEND"} | ({b"PLTE", b"tRNS"} if header.colour == "palette" else set())
    view = memoryview(data)
    return b"".join((PNG_SIGNATURE, *(view[c.start - 8 : c.end + 4] for c in chunks if c.kind in kept)))


def _decode_by_pillow(core: bytes, header: Header, *, as_indices: bool = False) -> NDArray[np.uint8]:
    try:
        # the class itself, because Image.open compares the size with a limit that belongs to the whole process
        with PngImageFile(BytesIO(core)) as file:
            file.load()
            if file.info.get("interlace") or not np.asarray(file.crop((0, file.height - 1, *file.size))).any():
                _check_length(core, header)
            image: Image.Image = file
            if file.mode == "1":
                image = file.convert("L")
            elif file.mode == "P" and not as_indices:
                image = file.convert("RGBA" if "transparency" in file.info else "RGB")
            pixels: NDArray[np.uint8] = np.asarray(image)
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error) as error:
        raise InvalidImage(f"the PNG is truncated or corrupt: {error}") from error
    return pixels.reshape(*header.stored, -1)


def _decode_samples(data: bytes, chunks: list[Chunk], header: Header, by: Deflate) -> Pixels:
    """Decode in C++ or by OpenCV if they return exactly the samples of the file, else with Pillow."""
    plain = header.colour != "palette" and header.bits >= 8
    kernel = None if _is_interlaced(data) else installed_filters()
    try:
        if plain and kernel:
            return kernel.restore(_scanlines(data, chunks, header, by)[0], header)
        stored = _without_compression(data, chunks, header, by) if plain else None
    except InvalidImage:
        if header.bits == 16:
            raise
        stored = None
    if stored is None:  # Pillow also decodes, or explains the error of, 8-bit data that failed the check
        return _decode_by_pillow(_keep_pixel_chunks(data, chunks, header), header)
    decoded: Any = cv2.imdecode(stored, cv2.IMREAD_UNCHANGED)
    del stored
    if decoded is None or decoded.dtype.itemsize * 8 != header.bits or decoded.shape[:2] != header.stored:
        raise InvalidImage("the PNG is corrupt")
    pixels: Pixels = decoded.reshape(*header.stored, -1)
    if header.colour == "grey":
        grey: Any = pixels[:, :, ::3] if header.alpha else pixels
        return np.ascontiguousarray(grey)
    cv2.cvtColor(pixels, cv2.COLOR_BGRA2RGBA if header.alpha else cv2.COLOR_BGR2RGB, dst=pixels)
    return pixels


def _without_compression(data: bytes, chunks: list[Chunk], header: Header, by: Deflate) -> NDArray[np.uint8]:
    """The same PNG with uncompressed scanlines, so that they need not be inflated again.

    They are written as stored blocks (RFC 1950, 1951) by hand, because zlib would compute the checksum again.

    Raises:
        InvalidImage: the data are corrupt, or their length is wrong.
    """
    lines, checksum = _scanlines(data, chunks, header, by)
    at = 0
    for rows, stride in _scanline_counts(data, header):
        if lines[at : at + rows * stride : stride].max() > 4:
            raise InvalidImage("the PNG is corrupt: unknown filter type")
        at += rows * stride
    view, pieces = lines.data, list[bytes | memoryview]([b"IDAT\x78\x01"])
    for start in range(0, len(lines), _STORED_BLOCK):
        piece = view[start : start + _STORED_BLOCK]
        last = start + _STORED_BLOCK >= len(lines)
        pieces += (struct.pack("<BHH", last, len(piece), len(piece) ^ 0xFFFF), piece)
    pieces.append(checksum)
    crc = 0
    for part in pieces:
        crc = by.crc32(part, crc)
    first = len(PNG_SIGNATURE) + 25  # after IHDR
    size = struct.pack(">I", sum(map(len, pieces)) - 4)
    return _concatenate([data[:first], size, *pieces, struct.pack(">I", crc), *_chunk_pieces(b"IEND", b"", by)])


def _concatenate(pieces: list[bytes | memoryview]) -> NDArray[np.uint8]:
    """Concatenate the pieces, in steps where `bytes.join` would hold the GIL for long."""
    total = sum(map(len, pieces))
    if total <= _JOINED_AT_ONCE:
        return np.frombuffer(b"".join(pieces), np.uint8)
    whole = np.empty(total, np.uint8)
    at = 0
    for piece in pieces:
        whole[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    return whole


def _scanline_counts(data: bytes, header: Header) -> list[tuple[int, int]]:
    """Number of scanlines, and bytes of each with its filter type, for each pass of the picture."""
    samples = 1 if header.colour == "palette" else (1 if header.colour == "grey" else 3) + header.alpha
    height, width = header.stored
    passes = _ADAM7 if _is_interlaced(data) else ((0, 0, 1, 1),)
    sizes = [(-(-(height - r) // dr), -(-(width - c) // dc)) for r, c, dr, dc in passes if height > r and width > c]
    return [(rows, 1 + (columns * samples * header.bits + 7) // 8) for rows, columns in sizes]


def _is_interlaced(data: bytes) -> bool:
    return data[len(PNG_SIGNATURE) + 8 + 12] == 1


def _compressed_scanlines(data: bytes, chunks: list[Chunk]) -> bytes:
    view = memoryview(data)
    return b"".join(view[c.start : c.end] for c in chunks if c.kind == b"IDAT")


def _check_length(core: bytes, header: Header) -> None:
    """Check that a PNG has all of its pixels, by inflating it piece by piece."""
    missing = sum(rows * stride for rows, stride in _scanline_counts(core, header))
    inflate, packed = zlib.decompressobj(), _compressed_scanlines(core, list(png_chunks(core)))
    while packed and missing > 0:
        missing -= len(inflate.decompress(packed, _PIECE))
        packed = inflate.unconsumed_tail
    if missing > 0:
        raise InvalidImage("the PNG is truncated: it has fewer pixels than its header says")


def _scanlines(data: bytes, chunks: list[Chunk], header: Header, by: Deflate) -> tuple[NDArray[np.uint8], bytes]:
    """Inflate a PNG's data and check their length; return the scanlines and their zlib checksum.

    Raises:
        InvalidImage: the data are corrupt, or their length is wrong.
    """
    expected = sum(rows * stride for rows, stride in _scanline_counts(data, header))
    packed = _compressed_scanlines(data, chunks)
    try:
        inflated, unused = inflate(packed, expected, by)
    except by.error as error:
        raise InvalidImage(f"the PNG is corrupt: {error}") from error
    if inflated is None:
        raise InvalidImage("the PNG is truncated or corrupt: it has more or fewer pixels than its header says")
    end = len(packed) - unused
    return inflated, packed[end - 4 : end]


def _add_transparent_colour(pixels: Pixels, transparent: bytes, bits: int) -> Pixels:
    """Add the alpha of a tRNS chunk: 0 where a pixel has exactly its colour, else opaque."""
    channels, opaque = pixels.shape[2], np.iinfo(pixels.dtype).max
    if len(transparent) != 2 * channels:
        raise InvalidImage(f"the PNG's tRNS chunk has {len(transparent)} bytes instead of {2 * channels}")
    scale = opaque // (2**bits - 1)
    key = np.array(struct.unpack(f">{channels}H", transparent), np.int64) * scale
    alpha = np.full((*pixels.shape[:2], 1), opaque, pixels.dtype)
    alpha[(pixels == key).all(axis=2, keepdims=True)] = 0
    return np.concatenate((pixels, alpha), axis=2)
