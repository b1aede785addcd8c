"""Encodes an array of pixels as PNG with the standard library: neither numpy nor Pillow is needed."""

from __future__ import annotations

import struct
import zlib
from typing import Any, Protocol

from retouch.client.errors import PictureUnusable

_COLOUR_TYPE = {1: 0, 3: 2, 4: 6}
"""Number of channels → colour type of PNG: grey, RGB, RGBA."""


class PixelArray(Protocol):
    """An array of pixels, as numpy has them: H×W or H×W×C, of uint8, uint16 (grey alone) or bool."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    def astype(self, dtype: str) -> Any: ...

    def tobytes(self) -> bytes: ...


def encode_png(array: PixelArray) -> bytes:
    """Encode an array as a PNG file.

    Args:
        array: H×W, or H×W×C with C = 1, 3 (RGB) or 4 (RGBA); uint8, bool (true becomes 255), or for grey uint16.

    Raises:
        PictureUnusable: it has another shape or type.
    """
    shape, dtype = tuple(array.shape), str(array.dtype)
    height, width, channels = (*shape, 1)[:3] if len(shape) in {2, 3} else (0, 0, 0)
    deep = dtype == "uint16"
    if not (height and width and channels in _COLOUR_TYPE):
        raise PictureUnusable(f"an array of shape {shape} is not a picture; pass H×W, H×W×3 (RGB) or H×W×4 (RGBA)")
    if dtype not in {"uint8", "uint16", "bool"} or (deep and channels > 1):
        raise PictureUnusable(
            f"an array of {dtype} in {channels} channels cannot be sent; pass uint8 from 0 to 255, bool, or grey uint16"
        )
    if dtype == "bool":
        array = array.astype("uint8") * 255
    data = array.astype(">u2").tobytes() if deep else array.tobytes()
    stride = len(data) // height
    rows = b"".join(b"\0" + data[start : start + stride] for start in range(0, len(data), stride))  # 0: no filter
    header = struct.pack(">IIBBBBB", width, height, 16 if deep else 8, _COLOUR_TYPE[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
