"""Reads format, size, orientation and depth of a picture from its file's header, without decoding it.

The format is taken from the file's first bytes, not from the client's media type. The pixel limit is checked as soon
as the size is known, so that a decompression bomb costs microseconds and no memory.
"""

from __future__ import annotations

import struct
from typing import Literal, NamedTuple, NoReturn

from service.core.errors import InvalidImage, TooLarge, UnsupportedType
from service.core.pictures import ImageFormat, Size
from service.imaging.files.containers import JPEG_PROFILE, Chunk, jpeg_segments, webp_chunks
from service.imaging.files.png_chunks import PNG_SIGNATURE, ordered_png_chunks

Colour = Literal["grey", "rgb", "palette"]
MAX_SIDE = 65_535
"""Longest side in pixels, which is that of the JPEG format."""

_OTHER_FORMATS = (
    (0, b"GIF8", "a GIF"),
    (0, b"BM", "a BMP"),
    (0, b"II*\0", "a TIFF"),
    (0, b"MM\0*", "a TIFF"),
    (4, b"ftypavif", "an AVIF"),
    (4, b"ftyp", "a HEIF or video"),
    (0, b"\xff\x0a", "a JPEG XL"),
    (4, b"JXL ", "a JPEG XL"),
    (4, b"jP  ", "a JPEG 2000"),
    (0, b"%PDF", "a PDF"),
    (0, b"<", "a text file"),
    (0, b"PK", "a ZIP archive"),
)
_PNG_DEPTHS: dict[int, tuple[Colour, bool, tuple[int, ...]]] = {
    0: ("grey", False, (1, 2, 4, 8, 16)),
    2: ("rgb", False, (8, 16)),
    3: ("palette", False, (1, 2, 4, 8)),
    4: ("grey", True, (8, 16)),
    6: ("rgb", True, (8, 16)),
}
_SOF_DECODED = frozenset(b"\xc0\xc1\xc2\xc9\xca")
_SOF_PROGRESSIVE = frozenset(b"\xc2\xca")
_HALVED_CHROMA = b"\x22\x11\x11"
"""The sampling factors of brightness and both colours in a 4:2:0 JPEG."""
_SOF_OTHER = frozenset(b"\xc3\xc5\xc6\xc7\xcb\xcd\xce\xcf")


class Header(NamedTuple):
    """The facts about a picture that its file's header gives.

    stored: size of the pixels in the file. orientation: 1–8 as in EXIF; it says how to turn them upright.
    bits: bits per sample, 1–16. colour: of the samples; a JPEG with four components (CMYK) counts as rgb.
    alpha: whether there is an alpha channel (a PNG's tRNS chunk does not count).
    transparent: whether a PNG has a tRNS chunk.
    progressive, inks: whether a JPEG is progressive; whether its samples are CMYK.
    halved_chroma: whether a JPEG's colours have half its height and half its width (4:2:0), as cameras write them.
    profile: whether there is a colour profile, which may turn out to be broken.
    """

    format: ImageFormat
    stored: Size
    orientation: int = 1
    bits: int = 8
    colour: Colour = "rgb"
    alpha: bool = False
    transparent: bool = False
    progressive: bool = False
    inks: bool = False
    halved_chroma: bool = False
    profile: bool = False

    @property
    def size(self) -> Size:
        """The size of the upright picture."""
        return Size(self.stored.width, self.stored.height) if self.orientation >= 5 else self.stored


def read_header(data: bytes, *, max_pixels: int) -> Header:
    """Read the header of a JPEG, PNG or WebP file.

    Raises:
        UnsupportedType: another format, an animation, or a kind of JPEG that is not decoded (lossless, 12-bit).
        TooLarge: code `too_many_pixels`; the message names the size and the limit.
        InvalidImage: the file is empty, truncated or broken, or a side has 0 pixels.
    """
    if not data:
        raise InvalidImage("the file is empty; send a JPEG, PNG or WebP")
    if data.startswith(PNG_SIGNATURE):
        return _read_png(data, max_pixels)
    if data.startswith(b"\xff\xd8\xff"):
        return _read_jpeg(data, max_pixels)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _read_webp(data, max_pixels)
    what = next((name for at, magic, name in _OTHER_FORMATS if data.startswith(magic, at)), "of unknown type")
    raise UnsupportedType(f"the file is {what}; send a JPEG, PNG or WebP")


def _read_png(data: bytes, max_pixels: int) -> Header:
    chunks = ordered_png_chunks(data)
    first = next(chunks)
    if first.kind != b"IHDR" or first.end - first.start != 13:
        raise InvalidImage("the PNG does not start with an IHDR chunk of 13 bytes")
    width, height, bits, kind, compression, filtering, interlace = struct.unpack_from(">IIBBBBB", data, first.start)
    size = _checked_size(height, width, max_pixels)
    colour, alpha, depths = _PNG_DEPTHS.get(kind, ("grey", False, ()))
    if bits not in depths or compression or filtering or interlace > 1:
        raise InvalidImage(f"the PNG's header is broken: colour type {kind} with {bits} bits, interlace {interlace}")
    orientation, has_palette, has_data, transparent, profile = 0, False, False, False, False
    for chunk in chunks:
        if chunk.kind == b"acTL" and data[chunk.start : chunk.start + 4] != b"\0\0\0\1":
            _refuse_animation("PNG")
        elif chunk.kind == b"eXIf":
            orientation = orientation or _exif_orientation(data[chunk.start : chunk.end])
        elif chunk.kind == b"IHDR":
            raise InvalidImage("the PNG has a second IHDR chunk")
        transparent |= chunk.kind == b"tRNS"
        has_palette |= chunk.kind == b"PLTE"
        has_data |= chunk.kind == b"IDAT"
        profile |= chunk.kind == b"iCCP"
    if not has_data or (colour == "palette" and not has_palette):
        raise InvalidImage(f"the PNG has no {'PLTE' if has_data else 'IDAT'} chunk")
    return Header("png", size, orientation or 1, bits, colour, alpha, transparent, profile=profile)


def _read_jpeg(data: bytes, max_pixels: int) -> Header:
    frame: Header | None = None
    orientation, profile = 0, False
    for segment in jpeg_segments(data):
        marker = segment.kind[0]
        if marker in _SOF_OTHER:
            raise UnsupportedType(
                f"JPEGs of kind SOF{marker - 0xC0} are not supported; send a baseline or progressive one"
            )
        if marker in _SOF_DECODED:
            if frame is not None:
                raise InvalidImage("the JPEG has two frame headers")
            frame = _read_jpeg_frame(data, segment, max_pixels)
        elif marker == 0xE1 and data.startswith(b"Exif\0\0", segment.start, segment.end):
            orientation = orientation or _exif_orientation(data[segment.start + 6 : segment.end])
        elif marker == 0xE2:
            profile |= data.startswith(JPEG_PROFILE, segment.start, segment.end)
    if frame is None:
        raise InvalidImage("the JPEG has no frame header before its first scan")
    return frame._replace(orientation=orientation or 1, profile=profile)


def _read_jpeg_frame(data: bytes, segment: Chunk, max_pixels: int) -> Header:
    if segment.end - segment.start < 6:
        raise InvalidImage("the JPEG's frame header is too short")
    bits, height, width, components = struct.unpack_from(">BHHB", data, segment.start)
    size = _checked_size(height, width, max_pixels)
    if bits != 8:
        raise UnsupportedType(f"JPEGs with {bits} bits per sample are not supported; send one with 8, or a PNG")
    if components not in (1, 3, 4) or segment.end - segment.start != 6 + 3 * components:
        raise InvalidImage(f"the JPEG's frame header is broken: {components} components")
    progressive = segment.kind[0] in _SOF_PROGRESSIVE
    return Header(
        "jpeg",
        size,
        colour="grey" if components == 1 else "rgb",
        progressive=progressive,
        inks=components == 4,
        halved_chroma=data[segment.start + 7 : segment.end : 3] == _HALVED_CHROMA,
    )


def _read_webp(data: bytes, max_pixels: int) -> Header:
    canvas: Size | None = None
    orientation, alpha, profile = 0, False, False
    image: Header | None = None
    for chunk in webp_chunks(data):
        head = data[chunk.start : min(chunk.end, chunk.start + 10)]
        if chunk.kind == b"VP8X" and canvas is None and len(head) == 10:
            if head[0] & 0x02:
                _refuse_animation("WebP")
            width, height = (int.from_bytes(head[at : at + 3], "little") + 1 for at in (4, 7))
            canvas, alpha = _checked_size(height, width, max_pixels), bool(head[0] & 0x10)
        elif chunk.kind in (b"VP8 ", b"VP8L") and image is None:
            image = _read_webp_frame(chunk.kind, head, max_pixels)
        elif chunk.kind == b"EXIF" and canvas is not None:
            orientation = orientation or _exif_orientation(data[chunk.start : chunk.end].removeprefix(b"Exif\0\0"))
        profile |= chunk.kind == b"ICCP"
    if image is None or (canvas is not None and canvas != image.stored):
        raise InvalidImage(f"the WebP {'has no image' if image is None else 'is corrupt: it has two sizes'}")
    return Header("webp", image.stored, orientation or 1, alpha=alpha or image.alpha, profile=profile)


def _read_webp_frame(kind: bytes, head: bytes, max_pixels: int) -> Header:
    if kind == b"VP8L" and len(head) >= 5 and head[0] == 0x2F:
        bits = int.from_bytes(head[1:5], "little")
        size = _checked_size((bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1, max_pixels)
        return Header("webp", size, alpha=bool(bits >> 28 & 1))
    if kind == b"VP8 " and len(head) == 10 and head[3:6] == b"\x9d\x01\x2a" and not head[0] & 1:
        width, height = struct.unpack_from("<HH", head, 6)
        return Header("webp", _checked_size(height & 0x3FFF, width & 0x3FFF, max_pixels))
    raise InvalidImage("the WebP's image header is broken or truncated")


def _checked_size(height: int, width: int, max_pixels: int) -> Size:
    size = Size(height, width)
    if not height or not width:
        raise InvalidImage(f"the picture is {size} pixels; both sides must be at least 1")
    if height * width > max_pixels:
        raise TooLarge(
            f"the picture is {size}, {height * width:,} pixels; the limit is {max_pixels:,}; send a smaller one",
            code="too_many_pixels",
        )
    if max(size) > MAX_SIDE:
        raise TooLarge(f"the picture is {size}; a side can have at most {MAX_SIDE:,} pixels", code="too_many_pixels")
    return size


def _refuse_animation(name: str) -> NoReturn:
    raise UnsupportedType(f"the {name} is animated; send one frame as a still picture", code="animated_image")


def _exif_orientation(tiff: bytes) -> int:
    """The first valid orientation in EXIF (TIFF) data, 1–8; 1 if it is missing or broken, as in viewers.

    The caller takes the first of several EXIF blocks, as the page and browsers do; otherwise the user would paint the
    mask on a picture with another orientation.
    """
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return 1
    try:
        (offset,) = struct.unpack_from(order + "I", tiff, 4)
        (entries,) = struct.unpack_from(order + "H", tiff, offset)
        for at in range(offset + 2, offset + 2 + 12 * entries, 12):
            *entry, value = struct.unpack_from(order + "HHIH2x", tiff, at)
            if entry == [0x0112, 3, 1] and 1 <= value <= 8:
                return int(value)
    except struct.error:
        return 1
    return 1
