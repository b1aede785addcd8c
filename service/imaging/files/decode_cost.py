"""Estimates of a file's peak memory and time for decoding, from its header alone. Pure.

The constants were measured and include the decoders' own buffers. OpenCV's libpng turns grey with alpha into BGRA; it
reads interlaced files, and all files where the extension was not compiled. A progressive JPEG is kept as coefficients
until its last scan. The tests decode files and compare.
"""

from __future__ import annotations

from service.imaging.files.header import Header

_PNG_BYTES = {("grey", False): 5, ("grey", True): 15, ("rgb", False): 10, ("rgb", True): 13}
"""Bytes per pixel for 8-bit samples by colour and alpha; 16-bit samples take twice as much."""
_PNG_TRANSPARENT = {"grey": 2, "rgb": 4}
"""Additional bytes per pixel if a tRNS chunk adds alpha."""
_PNG_PALETTE = 14
_JPEG, _JPEG_TURNED, _JPEG_PROGRESSIVE, _JPEG_INKS = 5, 7, 10, 16
_WEBP, _WEBP_ALPHA = 8, 9
_COPIES_OF_A_PNG = 3
"""Peak memory of a PNG in file sizes (joined data, and two copies inflated); it counts if pixels are few."""
_SLOWER = 6
"""Largest factor on the time per pixel of a baseline JPEG or grey PNG (512²: 1.7 ms; an RGB PNG takes 7.4 ms)."""
_PIXELS_PER_BYTE = 25
"""Pixels that take as long as one byte of deflated data without pixels, such as an empty block."""
LARGE_PIXELS = 4_000_000
"""Least pixels of a large picture, which queues separately, so that it does not delay small ones."""
_MASK_BYTES = 4096
"""Most bytes of a drawn mask's PNG beyond one byte for every four pixels."""


def decode_effort(header: Header, file_bytes: int) -> int:
    """Return an upper estimate of the decoding time, in pixels of a baseline JPEG that takes as long."""
    pixels = header.stored.height * header.stored.width
    if header.format == "jpeg":
        return max(pixels * (_SLOWER if header.progressive or header.inks else 1), file_bytes)
    drawn = header.format == "png" and header.colour == "grey" and header.bits <= 8 and not header.alpha
    surplus = max(0, file_bytes - pixels // 4 - _MASK_BYTES)
    return max(pixels * (1 if drawn else _SLOWER), surplus * _PIXELS_PER_BYTE)


def is_large(header: Header, file_bytes: int) -> bool:
    """Whether a picture has at least 4 megapixels, or takes longer to decode than the slowest one of that size."""
    pixels = header.stored.height * header.stored.width
    return pixels >= LARGE_PIXELS or decode_effort(header, file_bytes) > LARGE_PIXELS * _SLOWER


def decoded_bytes(header: Header, file_bytes: int) -> int:
    """Peak memory in bytes of a file with this header and length, while it is decoded and afterwards."""
    pixels = header.stored.height * header.stored.width
    if header.format == "png":
        return max(pixels * _png_effort_per_pixel(header), file_bytes * _COPIES_OF_A_PNG)
    if header.format == "webp":
        return pixels * (_WEBP_ALPHA if header.alpha else _WEBP)
    return pixels * _jpeg_effort_per_pixel(header)


def _png_effort_per_pixel(header: Header) -> int:
    if header.colour == "palette":
        return _PNG_PALETTE
    transparent = _PNG_TRANSPARENT[header.colour] if header.transparent else 0
    return (_PNG_BYTES[header.colour, header.alpha] + transparent) * (2 if header.bits == 16 else 1)


def _jpeg_effort_per_pixel(header: Header) -> int:
    if header.inks:
        return _JPEG_INKS
    if header.progressive:
        return _JPEG_PROGRESSIVE
    return _JPEG if header.orientation == 1 else _JPEG_TURNED
