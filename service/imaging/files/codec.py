"""Decodes image files to pixels, and encodes them, by the rules of docs/images.md.

All functions are pure and thread-safe; the libraries release the GIL. The libraries were chosen by
measurement: benchmarks/codecs/codec.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from types import MappingProxyType
from typing import Any

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from service.core.errors import InvalidImage, InvalidOption
from service.core.pictures import Bool2D, Brightness, ImageFormat, MaskMode, Picture, Pixels, Size
from service.imaging.files.containers import SOS
from service.imaging.files.deflate import FASTEST
from service.imaging.files.header import Header, read_header
from service.imaging.files.icc import embed_in_jpeg, profile_for_channels, read_profile
from service.imaging.files.jpeg import choose_chroma, encode_jpeg, jpeg_strips
from service.imaging.files.pixels import to_8_bits
from service.imaging.files.png import decode_png, encode_png
from service.imaging.files.scanlines import installed_kernel, png_strips
from service.imaging.pool.parallel_steps import DeferredStep, StepRunner, run_sequentially

StripsAhead = Mapping[range, DeferredStep[Any]]
"""Strips of a file that are encoded ahead of the others, by their rows."""
MEDIA_TYPES: dict[ImageFormat, str] = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp"}
MAX_SCANS = 100
"""Limit of scans in a progressive JPEG, each of which is a pass over the picture; encoders write about 10."""
_SEARCH_BYTES = 1 << 16
"""Bytes that are searched at a time, so that numpy's intermediate arrays stay in the cache."""

_MAX_SIDES: dict[ImageFormat, int] = {"png": 2**31 - 1, "jpeg": 65_500, "webp": 16_383}
_WEBP_METHOD = 2
_WEBP_HEADER_BYTES = 32
"""Fewest bytes that OpenCV accepts; a file of a few pixels can be shorter and is padded."""
_SUBSAMPLING = "Could not determine subsampling level"
"""libjpeg-turbo's message for plane sizes it has no name for, such as a CMYK file with one full plane of four."""
_HARMLESS = re.compile(r"extraneous bytes before marker 0xd9|Invalid SOS parameters for sequential JPEG")
"""libjpeg warnings to ignore, for files of some phones: bytes after the last pixel, odd fields of the scan header."""


def decode(data: bytes, *, max_pixels: int, header: Header | None = None) -> Picture:
    """Decode a JPEG, PNG or WebP file to an upright picture.

    Args:
        data: the file.
        max_pixels: limit of height × width.
        header: the file's header, if it was read already.

    Raises:
        UnsupportedType, TooLarge, InvalidImage: from the header, before anything is decoded (header.py).
        InvalidImage: the file is truncated or corrupt; a part of a picture is never returned.
    """
    header = header or read_header(data, max_pixels=max_pixels)
    samples = _apply_orientation(_decode_samples(data, header), header.orientation)
    colours = 1 if samples.shape[2] < 3 else 3
    profile = read_profile(data, header.format, colours) if header.profile else None
    if samples.shape[2] == colours:
        return Picture(samples, None, profile, header.halved_chroma)
    return Picture(_contiguous_samples(samples[:, :, :colours]), _contiguous_samples(samples[:, :, colours]), profile)


def decode_mask(data: bytes, mode: MaskMode, *, max_pixels: int, header: Header | None = None) -> Bool2D:
    """Decode a mask file: H×W, True = fill.

    `white` fills where the luminance is at least 128 (32,768 of a 16-bit file), `black` where it is less, and `alpha`
    where alpha is exactly 0. The first two modes ignore alpha.

    Raises:
        As `decode`; and InvalidOption: mode `alpha` for a file without alpha.
    """
    picture = decode(data, max_pixels=max_pixels, header=header)
    if mode == "alpha":
        if picture.alpha is None:
            raise InvalidOption(
                "the mask needs an alpha channel, and this one has none",
                code="no_alpha",
                advice="use another mask_mode",
                field="mask",
            )
        return np.equal(picture.alpha, 0)
    luminance, half = _luminance(picture)
    return np.greater_equal(luminance, half) if mode == "white" else np.less(luminance, half)


def measure_brightness(data: bytes, *, max_pixels: int, header: Header | None = None) -> Brightness:
    """The darkest and brightest value of a mask, to explain why it selects nothing or everything.

    It decodes the file again, which only happens for a mask that is refused.

    Raises:
        As `decode`.
    """
    luminance, half = _luminance(decode(data, max_pixels=max_pixels, header=header))
    return Brightness(int(luminance.min()), int(luminance.max()), half)


def check_encodable(size: Size, file_format: ImageFormat) -> None:
    """Raise InvalidOption if a format cannot hold a picture of that size."""
    limit = _MAX_SIDES[file_format]
    if max(size) > limit:
        raise InvalidOption(
            f"a {file_format} holds at most {limit:,} pixels a side and the picture is {size}",
            code="format_too_small",
            advice="use format=png",
            field="format",
        )


def strips_ahead(picture: Picture, file_format: ImageFormat, quality: int, changed: Sequence[range]) -> StripsAhead:
    """Return the strips of a picture that can be encoded although some of its rows are still going to change.

    Args:
        picture: of 8 bits without alpha; other pictures, and drawings as PNG, have no such strips.
        file_format: as for `encode`.
        quality: as for `encode`.
        changed: the rows that are still going to change.
    """

    def is_final(rows: range) -> bool:  # a row of a PNG is packed as its difference from the one above
        return not any(rows.start <= some.stop and some.start < rows.stop for some in changed)

    if picture.pixels.dtype == np.uint8 and picture.alpha is None:
        if file_format == "png":
            return png_strips(picture.pixels, installed_kernel(), FASTEST, is_final)
        if file_format == "jpeg":
            chroma = choose_chroma(quality, halved=picture.halved_chroma)
            found = jpeg_strips(np.ascontiguousarray(picture.pixels), quality, chroma)
            return {rows: step for rows, step in found.items() if is_final(rows)}
    return {}


def encode(
    picture: Picture,
    file_format: ImageFormat,
    quality: int,
    run_steps: StepRunner = run_sequentially,
    ahead: StripsAhead = MappingProxyType({}),
) -> bytes:
    """Encode a picture with its colour profile; the file does not depend on the number of threads that help.

    `ahead` has the strips that were encoded before, from `strips_ahead` of the same picture, format and quality.

    PNG is lossless: 8 or 16 bits, grey or RGB, with alpha. JPEG and WebP have 8 bits and `quality` (1–100); JPEG drops
    alpha, WebP turns grey into RGB.

    Raises:
        InvalidOption: the format cannot hold a picture of that size.
    """
    check_encodable(picture.size, file_format)
    if file_format == "png":
        return encode_png(_with_alpha_channel(picture), picture.icc, run_steps=run_steps, ahead=ahead)
    if file_format == "jpeg":
        return _encode_jpeg(picture, quality, run_steps, ahead)
    return _encode_webp(picture, quality)


def _luminance(picture: Picture) -> tuple[Pixels, int]:
    """The luminance, H×W with the picture's dtype, and the least value at which a mask pixel is white."""
    pixels = picture.pixels
    luminance: Any = pixels[:, :, 0] if pixels.shape[2] == 1 else cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    return luminance, (int(np.iinfo(pixels.dtype).max) + 1) // 2


def _decode_samples(data: bytes, header: Header) -> Pixels:
    """The pixels as stored, H×W×C, C = 1, 2 (grey, alpha), 3 or 4 (RGB, alpha)."""
    if header.format == "png":
        return decode_png(data, header)
    if header.format == "jpeg":
        return _decode_jpeg(data, header)
    return _decode_webp(data, header)


def _decode_jpeg(data: bytes, header: Header) -> NDArray[np.uint8]:
    scans = _count_scans(data)
    if scans > MAX_SCANS:
        raise InvalidImage(f"the JPEG has {scans} scans; at most {MAX_SCANS} are supported")
    try:
        wanted = _jpeg_colours(data, header)
        try:
            samples = simplejpeg.decode_jpeg(data, wanted)
        except ValueError as error:
            if not _HARMLESS.search(str(error)):
                raise
            samples = simplejpeg.decode_jpeg(data, wanted, strict=False)
    except ValueError as error:
        if _SUBSAMPLING in str(error):
            raise InvalidImage(
                "the JPEG's chroma subsampling is not supported; save it with 4:4:4 or, if it is not CMYK, 4:2:0"
            ) from error
        raise InvalidImage(f"the JPEG is truncated or corrupt: {error}") from error
    if wanted == "CMYK":  # Adobe stores inverted ink, and all readers expect that
        return np.asarray(Image.fromarray(255 - samples, "CMYK").convert("RGB"))
    return np.asarray(samples, np.uint8)


def _count_scans(data: bytes) -> int:
    """Count the markers of scans in a JPEG; `bytes.count` takes ten times as long and holds the GIL."""
    found = 0
    for start in range(0, len(data), _SEARCH_BYTES):
        piece = np.frombuffer(data, np.uint8, min(_SEARCH_BYTES + 1, len(data) - start), start)
        found += int(np.count_nonzero((piece[:-1] == 0xFF) & (piece[1:] == SOS)))
    return found


def _jpeg_colours(data: bytes, header: Header) -> str:
    """The colour space to ask libjpeg for: GRAY, RGB or CMYK."""
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except KeyError:  # 4:4:1 chroma subsampling, which simplejpeg decodes but has no name for
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


def _apply_orientation(samples: Pixels, orientation: int) -> Pixels:
    """Rotate and mirror stored pixels by the EXIF orientation, 1–8."""
    if orientation == 1:
        return samples
    turned = np.swapaxes(samples, 0, 1) if orientation >= 5 else samples
    if orientation in (2, 3, 6, 7):
        turned = turned[:, ::-1]
    if orientation in (3, 4, 7, 8):
        turned = turned[::-1]
    return _contiguous_samples(turned)


def _contiguous_samples(samples: Any) -> Pixels:
    contiguous: Pixels = np.ascontiguousarray(samples)
    return contiguous


def _with_alpha_channel(picture: Picture) -> Pixels:
    return picture.pixels if picture.alpha is None else _contiguous_samples(np.dstack((picture.pixels, picture.alpha)))


def _encode_jpeg(picture: Picture, quality: int, run_steps: StepRunner, ahead: StripsAhead) -> bytes:
    chroma = choose_chroma(quality, halved=picture.halved_chroma)
    body = encode_jpeg(np.ascontiguousarray(to_8_bits(picture.pixels)), quality, chroma, run_steps, ahead)
    return body if picture.icc is None else embed_in_jpeg(body, picture.icc)


def _encode_webp(picture: Picture, quality: int) -> bytes:
    samples = to_8_bits(_with_alpha_channel(picture))
    if samples.shape[2] < 3:
        samples = np.dstack((samples[:, :, :1],) * 3 + (samples[:, :, 1:],))
    file = BytesIO()
    Image.fromarray(samples).save(
        file,
        "WEBP",
        quality=quality,
        method=_WEBP_METHOD,
        exact=True,
        icc_profile=profile_for_channels(picture.icc, 3) or b"",
    )
    return file.getvalue()
