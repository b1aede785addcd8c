"""Files to pixels and back. docs/images.md states the rules; this file and those it imports follow them.

Everything here is pure and safe to call from several threads; the libraries release the interpreter lock while they
work. Which library does what was measured: benchmarks/host/codec.py.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from service.core.errors import InvalidImage, InvalidOption
from service.core.pictures import Bool2D, Brightness, ImageFormat, MaskMode, Picture, Pixels, Size
from service.imaging.files.header import Header, read_header
from service.imaging.files.icc import embed_in_jpeg, fitting, read_profile
from service.imaging.files.jpeg import encode_jpeg
from service.imaging.files.pixels import to_8_bits
from service.imaging.files.png import decode_png, encode_png
from service.imaging.pool.parallel_steps import SideBySide, in_turn

MEDIA_TYPES: dict[ImageFormat, str] = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp"}
MAX_SCANS = 100
"""Scans of a progressive JPEG: encoders write about 10; each one costs a pass over the whole picture."""

_MAX_SIDES: dict[ImageFormat, int] = {"png": 2**31 - 1, "jpeg": 65_500, "webp": 16_383}
_WEBP_METHOD = 2
_WEBP_HEADER_BYTES = 32
"""What OpenCV wants to see of a file, though one of a few pixels can be shorter."""
_HARMLESS = re.compile(r"extraneous bytes before marker 0xd9|Invalid SOS parameters for sequential JPEG")
"""Complaints about files that some phones write: bytes behind the last pixel, a needless field of the scan header."""


def decode(data: bytes, *, max_pixels: int, header: Header | None = None) -> Picture:
    """The picture in a JPEG, PNG or WebP file, upright.

    Args:
        data: the file.
        max_pixels: the pixel budget.
        header: the file's, where it was read already.

    Raises:
        UnsupportedType, TooLarge, InvalidImage: from the header, before anything is decoded (header.py).
        InvalidImage: truncated or corrupt; a part of a picture is never returned.
    """
    header = header or read_header(data, max_pixels=max_pixels)
    samples = _upright(_decode_samples(data, header), header.orientation)
    colours = 1 if samples.shape[2] < 3 else 3
    profile = read_profile(data, header.format, colours)
    if samples.shape[2] == colours:
        return Picture(samples, None, profile)
    return Picture(_contiguous(samples[:, :, :colours]), _contiguous(samples[:, :, colours]), profile)


def decode_mask(data: bytes, mode: MaskMode, *, max_pixels: int, header: Header | None = None) -> Bool2D:
    """What a mask file asks to fill: H×W, True = fill.

    `white` fills where the luminance is at least 128 (32,768 of a 16-bit file), `black` where it is less, `alpha`
    where alpha is 0. Partly transparent pixels and, in the first two modes, alpha as a whole are kept out of it.

    Raises:
        As `decode`; and InvalidOption: mode `alpha` for a file without alpha.
    """
    picture = decode(data, max_pixels=max_pixels, header=header)
    if mode == "alpha":
        if picture.alpha is None:
            raise InvalidOption(
                "mask_mode=alpha needs a mask with an alpha channel; this one has none", code="no_alpha"
            )
        return np.equal(picture.alpha, 0)
    luminance, half = _luminance(picture)
    return np.greater_equal(luminance, half) if mode == "white" else np.less(luminance, half)


def measure_brightness(data: bytes, *, max_pixels: int, header: Header | None = None) -> Brightness:
    """How dark and how bright a mask is, to say why it selects nothing or everything.

    It decodes the file once more: only a mask that is refused is looked at so, and the others pay nothing for it.

    Raises:
        As `decode`.
    """
    luminance, half = _luminance(decode(data, max_pixels=max_pixels, header=header))
    return Brightness(int(luminance.min()), int(luminance.max()), half)


def check_encodable(size: Size, file_format: ImageFormat) -> None:
    """Raises InvalidOption where a format cannot hold a picture of that size."""
    limit = _MAX_SIDES[file_format]
    if max(size) > limit:
        raise InvalidOption(
            f"a {file_format} holds at most {limit:,} pixels a side and the picture is {size}; ask for format=png",
            code="format_too_small",
        )


def encode(picture: Picture, file_format: ImageFormat, quality: int, side_by_side: SideBySide = in_turn) -> bytes:
    """The file of a picture, its colour profile embedded; the same file, whoever helps.

    PNG is lossless: exactly the pixels, 8 or 16 bits, grey or RGB, with alpha. JPEG and WebP get 8 bits and `quality`
    (1–100); JPEG drops alpha, WebP is RGB.

    Raises:
        InvalidOption: the format cannot hold a picture of that size.
    """
    check_encodable(picture.size, file_format)
    if file_format == "png":
        return encode_png(_joined(picture), picture.icc)
    if file_format == "jpeg":
        return _encode_jpeg(picture, quality, side_by_side)
    return _encode_webp(picture, quality)


def _luminance(picture: Picture) -> tuple[Pixels, int]:
    """H×W of the picture's dtype, and from where on it is white."""
    pixels = picture.pixels
    luminance: Any = pixels[:, :, 0] if pixels.shape[2] == 1 else cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    return luminance, (int(np.iinfo(pixels.dtype).max) + 1) // 2


def _decode_samples(data: bytes, header: Header) -> Pixels:
    """H×W×C as stored, C = 1, 2 (grey, alpha), 3 or 4 (RGB, alpha)."""
    if header.format == "png":
        return decode_png(data, header)
    if header.format == "jpeg":
        return _decode_jpeg(data, header)
    return _decode_webp(data, header)


def _decode_jpeg(data: bytes, header: Header) -> NDArray[np.uint8]:
    scans = data.count(b"\xff\xda")
    if scans > MAX_SCANS:
        raise InvalidImage(f"the JPEG has {scans} scans; at most {MAX_SCANS} are decoded")
    try:
        wanted = _jpeg_colours(data, header)
        try:
            samples = simplejpeg.decode_jpeg(data, wanted)
        except ValueError as error:
            if not _HARMLESS.search(str(error)):
                raise
            samples = simplejpeg.decode_jpeg(data, wanted, strict=False)
    except ValueError as error:
        raise InvalidImage(f"the JPEG is truncated or corrupt: {error}") from error
    if wanted == "CMYK":  # Adobe writes ink inverted, and everyone reads it so
        return np.asarray(Image.fromarray(255 - samples, "CMYK").convert("RGB"))
    return np.asarray(samples, np.uint8)


def _jpeg_colours(data: bytes, header: Header) -> str:
    """What libjpeg is asked for: GRAY, RGB or CMYK."""
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except KeyError:  # 4:4:1: simplejpeg decodes it and only has no name for it; colours alone are sampled so
        return "RGB"
    if (height, width) != header.stored:
        raise InvalidImage("the JPEG is corrupt: it has two sizes")
    return {"Gray": "GRAY", "CMYK": "CMYK", "YCCK": "CMYK"}.get(str(colours), "RGB")


def _decode_webp(data: bytes, header: Header) -> NDArray[np.uint8]:
    padded = data.ljust(_WEBP_HEADER_BYTES, b"\0")
    decoded = cv2.imdecode(np.frombuffer(padded, np.uint8), cv2.IMREAD_UNCHANGED)
    if decoded is None or decoded.shape[:2] != header.stored:
        raise InvalidImage("the WebP is truncated or corrupt")
    conversion = cv2.COLOR_BGRA2RGBA if decoded.shape[2] == 4 else cv2.COLOR_BGR2RGB
    return np.asarray(cv2.cvtColor(decoded, conversion), np.uint8)


def _upright(samples: Pixels, orientation: int) -> Pixels:
    """Turns stored pixels as EXIF orientation 1–8 says."""
    if orientation == 1:
        return samples
    turned = np.swapaxes(samples, 0, 1) if orientation >= 5 else samples
    if orientation in (2, 3, 6, 7):
        turned = turned[:, ::-1]
    if orientation in (3, 4, 7, 8):
        turned = turned[::-1]
    return _contiguous(turned)


def _contiguous(samples: Any) -> Pixels:
    contiguous: Pixels = np.ascontiguousarray(samples)
    return contiguous


def _joined(picture: Picture) -> Pixels:
    return picture.pixels if picture.alpha is None else _contiguous(np.dstack((picture.pixels, picture.alpha)))


def _encode_jpeg(picture: Picture, quality: int, side_by_side: SideBySide) -> bytes:
    body = encode_jpeg(np.ascontiguousarray(to_8_bits(picture.pixels)), quality, side_by_side)
    return body if picture.icc is None else embed_in_jpeg(body, picture.icc)


def _encode_webp(picture: Picture, quality: int) -> bytes:
    samples = to_8_bits(_joined(picture))
    if samples.shape[2] < 3:
        samples = np.dstack((samples[:, :, :1],) * 3 + (samples[:, :, 1:],))
    file = BytesIO()
    Image.fromarray(samples).save(
        file, "WEBP", quality=quality, method=_WEBP_METHOD, exact=True, icc_profile=fitting(picture.icc, 3) or b""
    )
    return file.getvalue()
