"""Builders of broken, hostile and rare image files, assembled byte by byte where a library would refuse."""

from __future__ import annotations

import io
import struct
import zlib
from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def ihdr(width: int, height: int, bits: int = 8, colour_type: int = 2, interlace: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, interlace))


def png_of_chunks(*chunks: bytes) -> bytes:
    return PNG_SIGNATURE + b"".join(chunks) + chunk(b"IEND", b"")


def png_rows(rows: NDArray[Any]) -> bytes:
    """Deflate H×N bytes as rows of a PNG, each after the filter byte of `none`."""
    return zlib.compress(np.pad(rows, ((0, 0), (1, 0))).tobytes())


def png(pixels: NDArray[Any], *extra: bytes) -> bytes:
    """Encode H×W×C, uint8 or uint16, as PNG without filters; `extra` chunks go before the pixels."""
    height, width, channels = pixels.shape
    samples = pixels if pixels.dtype == np.uint8 else pixels.astype(">u2")
    rows = np.ascontiguousarray(samples).view(np.uint8).reshape(height, -1)
    header = ihdr(width, height, pixels.itemsize * 8, COLOUR_TYPES[channels])
    return png_of_chunks(header, *extra, chunk(b"IDAT", png_rows(rows)))


def small_bits_png(values: NDArray[Any], bits: int, colour_type: int, *extra: bytes) -> bytes:
    """Encode H×W values of 1, 2 or 4 bits as PNG, grey (0) or palette (3)."""
    height, width = values.shape
    shifts = np.arange(bits)[::-1]
    spread = (values[:, :, None] >> shifts & 1).reshape(height, -1).astype(np.uint8)
    return png_of_chunks(
        ihdr(width, height, bits, colour_type), *extra, chunk(b"IDAT", png_rows(np.packbits(spread, axis=1)))
    )


def interlaced_png(pixels: NDArray[Any]) -> bytes:
    """Encode pixels as `png` does, in the seven passes of Adam7."""
    height, width, channels = pixels.shape
    samples = pixels if pixels.dtype == np.uint8 else pixels.astype(">u2")
    body = b""
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    for row, column, row_step, column_step in passes:
        part = np.ascontiguousarray(samples[row::row_step, column::column_step])
        if part.size:
            body += np.pad(part.view(np.uint8).reshape(part.shape[0], -1), ((0, 0), (1, 0))).tobytes()
    header = ihdr(width, height, pixels.itemsize * 8, COLOUR_TYPES[channels], interlace=1)
    return png_of_chunks(header, chunk(b"IDAT", zlib.compress(body)))


@cache  # deflating takes up to 0.3 s, and several test modules do it when they are imported
def png_bomb(side: int = 13_000) -> bytes:
    """Return a valid black PNG of side² pixels in a few kilobytes: 169 megapixels by default."""
    return png_of_chunks(ihdr(side, side, 1, 0), chunk(b"IDAT", zlib.compress(bytes(side * ((side + 7) // 8 + 1)), 9)))


@cache
def inflating_chunk(kind: bytes, prefix: bytes, megabytes: int = 100) -> bytes:
    """Return a chunk with a deflated part that inflates to so many megabytes of zeros."""
    deflate = zlib.compressobj(9)
    body = b"".join(deflate.compress(bytes(1 << 20)) for _ in range(megabytes)) + deflate.flush()
    return chunk(kind, prefix + body)


def saved(pixels: NDArray[Any], kind: str, **options: Any) -> bytes:
    """Encode pixels with Pillow; H×W×1 as grey."""
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze(2) if pixels.shape[2:] == (1,) else pixels).save(file, kind, **options)
    return file.getvalue()


def cmyk_jpeg(pixels: NDArray[np.uint8], **options: Any) -> bytes:
    """Encode H×W×4 as a CMYK JPEG, inverted as Adobe does."""
    file = io.BytesIO()
    Image.fromarray(pixels, "CMYK").save(file, "JPEG", **options)
    return file.getvalue()


def jpeg_441(side: int = 64) -> bytes:
    """Return a JPEG with a quarter of the chroma rows (4:4:1), made from a 4:1:1, so its blocks are out of order."""
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    factor = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411]
    made: bytes = cv2.imencode(".jpg", pixels, factor)[1].tobytes()
    return made.replace(b"\x03\x01\x41\x00\x02\x11\x01", b"\x03\x01\x14\x00\x02\x11\x01")


def exif(orientation: int, byte_order: str = "<") -> bytes:
    """Return an EXIF block (TIFF) with one entry, the orientation."""
    mark = b"II*\0" if byte_order == "<" else b"MM\0*"
    entry = struct.pack(byte_order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return mark + struct.pack(byte_order + "IH", 8, 1) + entry + bytes(4)


def jpeg_segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def with_jpeg_segment(jpeg: bytes, marker: int, body: bytes) -> bytes:
    """Insert a segment after the SOI of a JPEG."""
    return jpeg[:2] + jpeg_segment(marker, body) + jpeg[2:]


def jpeg_with_size(jpeg: bytes, width: int, height: int) -> bytes:
    """Change the size in the (baseline) frame header of a JPEG."""
    at = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:at] + struct.pack(">HH", height, width) + jpeg[at + 4 :]


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    """Return a WebP file of these chunks."""
    body = b"".join(kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for kind, data in chunks)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def vp8x(width: int, height: int, flags: int = 0) -> tuple[bytes, bytes]:
    return b"VP8X", struct.pack("<I", flags) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")


def vp8l_header(width: int, height: int) -> tuple[bytes, bytes]:
    """Return a lossless image chunk with only a header."""
    return b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)


def icc_profile(colour_space: bytes = b"RGB ") -> bytes:
    """Return a valid sRGB profile, relabelled for `colour_space`."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return profile[:16] + colour_space + profile[20:]
