"""How much memory a file takes while it is decoded, and about how long that takes, from its header alone. Pure.

Measured, not derived: the decoders' own buffers count too (OpenCV's libpng makes BGRA of grey with alpha, a progressive
JPEG is kept as coefficients until its last scan). Rounded up to whole bytes a pixel; its test decodes and
compares.
"""

from __future__ import annotations

from service.imaging.files.header import Header

_PNG_BY_OPENCV = {("grey", False): 5, ("grey", True): 15, ("rgb", False): 10, ("rgb", True): 13}
"""Bytes a pixel for samples of 8 bits, those of 16 take twice as much."""
_PNG_TRANSPARENT = {"grey": 2, "rgb": 4}
"""More, where a tRNS chunk adds alpha."""
_PNG_PALETTE = 14
_JPEG, _JPEG_TURNED, _JPEG_PROGRESSIVE, _JPEG_INKS = 5, 7, 10, 16
_WEBP, _WEBP_ALPHA = 8, 9
_COPIES_OF_A_PNG = 3
"""Its packed data are joined, and what they inflate to is there twice: more than the pixels where those are few."""
_SLOWER = 6
"""So many times as long as a plain JPEG, or a grey PNG, others take a pixel, at most (512²: 1.7 ms; RGB PNG 7.4)."""
_PIXELS_A_BYTE = 25
"""A byte of deflated data that stands for no pixels, such as one of an empty block, takes as long as so many pixels."""
LARGE_PIXELS = 4_000_000
"""From so many on a picture is large: it waits with its like, so that it holds up no smaller one."""
_MASK_BYTES = 4096
"""A PNG of a drawn mask has fewer, and one byte for each four pixels."""


def effort(header: Header, file_bytes: int) -> int:
    """How long the file takes to be decoded: as long as a plain JPEG of so many pixels, or less."""
    pixels = header.stored.height * header.stored.width
    if header.format == "jpeg":
        return max(pixels * (_SLOWER if header.progressive or header.inks else 1), file_bytes)
    drawn = header.format == "png" and header.colour == "grey" and header.bits <= 8 and not header.alpha
    surplus = max(0, file_bytes - pixels // 4 - _MASK_BYTES)
    return max(pixels * (1 if drawn else _SLOWER), surplus * _PIXELS_A_BYTE)


def is_large(header: Header, file_bytes: int) -> bool:
    """Whether a file takes as long as one of 4 megapixels, or has them."""
    pixels = header.stored.height * header.stored.width
    return pixels >= LARGE_PIXELS or effort(header, file_bytes) > LARGE_PIXELS * _SLOWER


def decoded_bytes(header: Header, file_bytes: int) -> int:
    """The most that a file of this header and length holds at once while it is decoded, and afterwards."""
    pixels = header.stored.height * header.stored.width
    if header.format == "png":
        return max(pixels * _png(header), file_bytes * _COPIES_OF_A_PNG)
    if header.format == "webp":
        return pixels * (_WEBP_ALPHA if header.alpha else _WEBP)
    return pixels * _jpeg(header)


def _png(header: Header) -> int:
    if header.colour == "palette":
        return _PNG_PALETTE
    transparent = _PNG_TRANSPARENT[header.colour] if header.transparent else 0
    return (_PNG_BY_OPENCV[header.colour, header.alpha] + transparent) * (2 if header.bits == 16 else 1)


def _jpeg(header: Header) -> int:
    if header.inks:
        return _JPEG_INKS
    if header.progressive:
        return _JPEG_PROGRESSIVE
    return _JPEG if header.orientation == 1 else _JPEG_TURNED
