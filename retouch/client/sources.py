"""Turns pictures into the bytes to send: from a path, bytes, an open file, a PIL image or an array.

Pillow is never imported here: a caller that passes a PIL image has imported it.
"""

from __future__ import annotations

import io
import os
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Union

from retouch.client.errors import PictureUnusable
from retouch.client.png import PixelArray, encode_png

_ORIENTATION = 0x0112
"""The EXIF tag that says how to turn a picture upright."""


class PilImage(Protocol):
    """The part of a PIL image's interface that is used here."""

    @property
    def mode(self) -> str: ...

    def load(self) -> Any: ...

    def getexif(self) -> Any: ...

    def save(self, fp: Any, format: str | None = ..., **params: Any) -> None: ...  # noqa: A002 -- Pillow's name


# evaluated at import, and Python 3.10 cannot join a string and a type with |
Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, BinaryIO, PilImage, PixelArray]
"""A picture: a path, an encoded file as bytes or open for reading, a PIL image, or an array (H×W or H×W×C)."""


def file_bytes(source: Source) -> bytes:
    """Return the encoded file of a picture. Files are sent as they are; PIL images and arrays become PNG.

    Of a PIL image's metadata only the EXIF orientation is sent; the server applies it, as for files.

    Raises:
        PictureUnusable: the source is of another type, is empty, or cannot be read or encoded.
    """
    try:
        data = _read(source)
    except (OSError, ValueError) as error:  # ValueError: a closed file, or a path with a NUL
        reason = getattr(error, "strerror", None) or error  # without the number and the name, which is said already
        raise PictureUnusable(f"{_named(source)} cannot be read: {reason}") from error
    if not data:
        raise PictureUnusable(f"{_named(source)} is empty")
    return data


def _read(source: Any) -> bytes:
    if isinstance(source, (str, os.PathLike)):
        return Path(source).read_bytes()
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if (pil := sys.modules.get("PIL.Image")) is not None and isinstance(source, pil.Image):
        return _encode_pil(source)
    if hasattr(source, "__array_interface__"):
        return encode_png(source)
    if hasattr(source, "read"):
        try:
            data = source.read()
        except UnicodeDecodeError:  # a picture is not text
            data = ""
        if isinstance(data, bytes):
            return data
        raise PictureUnusable(f"{_named(source)} gives text; open it with mode 'rb'")
    raise PictureUnusable(
        f"{_named(source)} is not a picture; pass a path, bytes, an open file, a PIL image or an array"
    )


def _encode_pil(image: PilImage) -> bytes:
    file = io.BytesIO()
    try:
        image.load()  # turns a TIFF upright, and removes its orientation
        image.save(file, "PNG", compress_level=1, exif=_orientation_of(image))
    except OSError as error:
        mode = image.mode
        raise PictureUnusable(f"a PIL image of mode {mode} cannot be sent; pass image.convert('RGB')") from error
    return file.getvalue()


def _orientation_of(image: PilImage) -> Any:
    """Return EXIF data with only the orientation of a PIL image; empty if it is upright or its EXIF is broken."""
    try:
        exif = image.getexif()
        orientation = exif.get(_ORIENTATION)
    except (SyntaxError, ValueError, struct.error):  # broken EXIF means upright, as on the server
        return b""
    if orientation not in range(2, 9):
        return b""
    reduced = type(exif)()
    reduced[_ORIENTATION] = orientation
    return reduced


def _named(source: object) -> str:
    if isinstance(source, (str, os.PathLike)):
        return str(source)
    return f"the picture of type {type(source).__name__}"
