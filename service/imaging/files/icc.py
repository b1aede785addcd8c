"""ICC colour profiles: read from uploads, dropped if they do not fit the pixels, embedded in results."""

from __future__ import annotations

import struct
import zlib

from service.core.errors import InvalidImage
from service.core.pictures import ImageFormat
from service.imaging.files.containers import JPEG_PROFILE, jpeg_segments, webp_chunks
from service.imaging.files.png_chunks import png_chunks

MAX_PROFILE_BYTES = 4 << 20
"""Largest profile after inflating; profiles of printers have up to 3 MB."""

_JPEG_PIECE = 65_533 - len(JPEG_PROFILE) - 2
_COLOUR_SPACES = {1: b"GRAY", 3: b"RGB "}


def read_profile(data: bytes, file_format: ImageFormat, channels: int) -> bytes | None:
    """The profile embedded in a file whose header was read; None without one.

    A profile that is broken or whose colour space does not have `channels` channels (1 or 3) is dropped, too, as
    viewers ignore it.

    Raises:
        InvalidImage: the profile has more than `MAX_PROFILE_BYTES` after inflating.
    """
    profile = {"jpeg": _read_jpeg_profile, "png": _read_png_profile, "webp": _read_webp_profile}[file_format](data)
    if len(profile) > MAX_PROFILE_BYTES:
        raise InvalidImage(
            f"the colour profile is larger than {MAX_PROFILE_BYTES >> 20} MiB; send the image without it"
        )
    if len(profile) < 132 or profile[36:40] != b"acsp" or struct.unpack_from(">I", profile)[0] > len(profile):
        return None
    return profile_for_channels(profile, channels)


def profile_for_channels(profile: bytes | None, channels: int) -> bytes | None:
    """The profile; None if its colour space does not have that many channels."""
    return profile if profile is not None and profile[16:20] == _COLOUR_SPACES[channels] else None


def embed_in_jpeg(jpeg: bytes, profile: bytes) -> bytes:
    """Insert the profile into a JPEG file, in APP2 segments after its JFIF header."""
    after = 4 + struct.unpack_from(">H", jpeg, 4)[0] if jpeg[2:4] == b"\xff\xe0" else 2
    pieces = [profile[at : at + _JPEG_PIECE] for at in range(0, len(profile), _JPEG_PIECE)]
    segments = [
        struct.pack(">HH", 0xFFE2, 2 + len(JPEG_PROFILE) + 2 + len(piece))
        + JPEG_PROFILE
        + bytes((number, len(pieces)))
        + piece
        for number, piece in enumerate(pieces, 1)
    ]
    return b"".join((jpeg[:after], *segments, jpeg[after:]))


def _read_jpeg_profile(data: bytes) -> bytes:
    pieces: dict[int, bytes] = {}
    count = 0
    for segment in jpeg_segments(data):
        if segment.kind == b"\xe2" and data.startswith(JPEG_PROFILE, segment.start, segment.end):
            body = data[segment.start + len(JPEG_PROFILE) : segment.end]
            if len(body) > 2:
                pieces[body[0]], count = body[2:], body[1]
    return b"".join(pieces[n] for n in range(1, count + 1)) if sorted(pieces) == list(range(1, count + 1)) else b""


def _read_png_profile(data: bytes) -> bytes:
    for chunk in png_chunks(data):
        if chunk.kind == b"iCCP":
            _, separator, packed = data[chunk.start : chunk.end].partition(b"\0")
            try:
                inflated = zlib.decompressobj().decompress(packed[1:], MAX_PROFILE_BYTES + 1)
            except zlib.error:
                return b""
            return inflated if separator else b""
        if chunk.kind == b"IDAT":
            break
    return b""


def _read_webp_profile(data: bytes) -> bytes:
    return next((data[chunk.start : chunk.end] for chunk in webp_chunks(data) if chunk.kind == b"ICCP"), b"")
