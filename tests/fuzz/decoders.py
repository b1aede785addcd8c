"""The decoders of untrusted files, as one function that fails where a server would.

`survive` is the property: whatever the bytes, each decoder either gives pixels that keep its promises or raises an
error of the contract with a status of 4xx. Anything else (another exception, a 5xx, a crash, a hang, memory) is a
finding.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from service.core.errors import ServiceError
from service.core.pictures import Picture
from service.imaging.files.codec import decode, decode_mask, encode
from service.imaging.files.label_maps import decode_ids
from tests.serving import image_files

MAX_PIXELS = 500_000
"""Small, so that an input takes milliseconds; larger pictures are refused from their header."""
DATA = Path(__file__).parents[1] / "data"


def survive(data: bytes, decoders: Sequence[Callable[[bytes], None]] = ()) -> int:
    """Return the number of decoders that accept the bytes; by default of the service's three.

    Raises:
        AssertionError: a promise was broken.
    """
    return sum(_survives(decoder, data) for decoder in decoders or (_picture, _mask, _ids))


def _survives(decoder: Callable[[bytes], None], data: bytes) -> bool:
    refusal: ServiceError | None = None
    try:
        decoder(data)
    except ServiceError as error:
        refusal = error
    if refusal is not None:
        assert 400 <= refusal.status < 500, f"{refusal.status}: {refusal}"
        assert str(refusal), "an error without a word"
    return refusal is None


def _picture(data: bytes) -> None:
    picture = decode(data, max_pixels=MAX_PIXELS)
    _check(picture)
    if picture.pixels.size < 20_000:
        again = decode(encode(picture, "png", 90), max_pixels=MAX_PIXELS)
        assert np.array_equal(again.pixels, picture.pixels), "PNG lost pixels"


def _check(picture: Picture) -> None:
    height, width, channels = picture.pixels.shape
    assert 0 < height * width <= MAX_PIXELS
    assert channels in (1, 3)
    assert picture.pixels.dtype in (np.uint8, np.uint16)
    assert picture.alpha is None or picture.alpha.shape == (height, width)


def _mask(data: bytes) -> None:
    for mode in ("white", "black", "alpha"):
        assert decode_mask(data, mode, max_pixels=MAX_PIXELS).ndim == 2


def _ids(data: bytes) -> None:
    ids = decode_ids(data, max_pixels=MAX_PIXELS)
    assert ids.min() >= 0
    assert ids.max() <= 65_535


def seeds() -> Iterator[bytes]:
    """Yield the initial inputs for mutation: small files of every supported kind, and a few that are refused."""
    rng = np.random.default_rng(0)
    for channels in (1, 2, 3, 4):
        for dtype in (np.uint8, np.uint16):
            yield image_files.png(rng.integers(0, np.iinfo(dtype).max, (7, 5, channels), dtype))
    for bits in (1, 2, 4):
        yield image_files.small_bits_png(rng.integers(0, 2**bits, (5, 9)), bits, 0)
        palette = image_files.chunk(b"PLTE", bytes(3 * 2**bits))
        yield image_files.small_bits_png(rng.integers(0, 2**bits, (5, 9)), bits, 3, palette)
    pixels = rng.integers(0, 256, (16, 24, 3), np.uint8)
    yield image_files.interlaced_png(pixels)
    yield image_files.png(pixels, image_files.chunk(b"tRNS", bytes(6)))
    for options in ({}, {"progressive": True}, {"subsampling": 0}):
        yield image_files.saved(pixels, "JPEG", **options)
    yield image_files.saved(pixels[:, :, 0], "JPEG")
    yield image_files.cmyk_jpeg(np.dstack([pixels, pixels[:, :, :1]]))
    yield image_files.jpeg_441()
    yield image_files.with_jpeg_segment(image_files.saved(pixels, "JPEG"), 0xE1, image_files.exif(6))
    for options in ({"lossless": True}, {"quality": 50}):
        yield image_files.saved(pixels, "WEBP", **options)
        yield image_files.saved(np.dstack([pixels, pixels[:, :, :1]]), "WEBP", **options)
    yield image_files.saved(pixels, "GIF")
    yield (DATA / "dress_mask.png").read_bytes()


def with_right_sums(data: bytes) -> bytes:
    """Return a PNG with correct CRCs, without which no mutation would get past the first chunk."""
    if not data.startswith(image_files.PNG_SIGNATURE):
        return data
    mended, at = bytearray(data), len(image_files.PNG_SIGNATURE)
    while at + 12 <= len(mended):
        (length,) = struct.unpack_from(">I", mended, at)
        end = at + 8 + length
        if end + 4 > len(mended):
            break
        struct.pack_into(">I", mended, end, zlib.crc32(mended[at + 4 : end]))
        at = end + 4
    return bytes(mended)
