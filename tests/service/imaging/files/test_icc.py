from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from service.core.errors import InvalidImage
from service.imaging.files.icc import embed_in_jpeg, profile_for_channels, read_profile
from tests.serving import image_files as files

RGB = np.zeros((4, 5, 3), np.uint8)
JPEG = files.saved(RGB, "JPEG")
PROFILE = files.icc_profile()


def icc_segment(number: int, count: int, body: bytes) -> bytes:
    return files.jpeg_segment(0xE2, b"ICC_PROFILE\0" + bytes((number, count)) + body)


def with_segments(*segments: bytes) -> bytes:
    return JPEG[:2] + b"".join(segments) + JPEG[2:]


def iccp(body: bytes) -> bytes:
    return files.png(RGB, files.chunk(b"iCCP", body))


def long_profile(length: int) -> bytes:
    return struct.pack(">I", length) + PROFILE[4:] + bytes(length - len(PROFILE))


@pytest.mark.parametrize("length", [len(PROFILE), 65_519, 65_520, 300_000])
def test_a_profile_is_read_back_from_the_segments_that_it_was_embedded_in(length: int) -> None:
    profile = long_profile(length)
    assert read_profile(embed_in_jpeg(JPEG, profile), "jpeg", 3) == profile


def test_a_jpeg_without_a_jfif_header_takes_a_profile_too() -> None:
    bare = JPEG[:2] + JPEG[4 + struct.unpack_from(">H", JPEG, 4)[0] :]
    assert read_profile(embed_in_jpeg(bare, PROFILE), "jpeg", 3) == PROFILE


def test_pieces_in_any_order_are_joined_by_their_numbers() -> None:
    data = with_segments(icc_segment(2, 2, PROFILE[300:]), icc_segment(1, 2, PROFILE[:300]))
    assert read_profile(data, "jpeg", 3) == PROFILE


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(with_segments(icc_segment(1, 2, PROFILE)), id="a piece is missing"),
        pytest.param(with_segments(icc_segment(1, 1, b"")), id="an empty piece"),
        pytest.param(with_segments(icc_segment(1, 1, PROFILE[:100])), id="shorter than a profile's header"),
        pytest.param(with_segments(icc_segment(1, 1, PROFILE[:-1])), id="shorter than it says"),
        pytest.param(with_segments(icc_segment(1, 1, PROFILE.replace(b"acsp", b"ACSP"))), id="no profile at all"),
        pytest.param(with_segments(icc_segment(1, 1, files.icc_profile(b"CMYK"))), id="for CMYK"),
        pytest.param(with_segments(icc_segment(1, 1, files.icc_profile(b"GRAY"))), id="for grey"),
        pytest.param(JPEG, id="none"),
    ],
)
def test_a_profile_that_cannot_be_used_is_dropped_from_a_jpeg(data: bytes) -> None:
    assert read_profile(data, "jpeg", 3) is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"name without an end", id="no separator"),
        pytest.param(b"name\0\0garbage", id="no deflate stream"),
        pytest.param(b"name\0\0" + zlib.compress(PROFILE)[:60], id="cut stream"),
        pytest.param(b"", id="empty"),
    ],
)
def test_a_broken_profile_is_dropped_from_a_png(body: bytes) -> None:
    assert read_profile(iccp(body), "png", 3) is None


def test_a_profile_is_found_in_a_png_and_a_webp() -> None:
    assert read_profile(iccp(b"name\0\0" + zlib.compress(PROFILE)), "png", 3) == PROFILE
    assert read_profile(files.saved(RGB, "WEBP", icc_profile=PROFILE), "webp", 3) == PROFILE
    assert read_profile(files.saved(RGB, "WEBP"), "webp", 3) is None


@pytest.mark.parametrize("format_", ["png", "webp", "jpeg"])
def test_a_profile_of_more_than_4_mib_is_refused(format_: str) -> None:
    huge = long_profile((4 << 20) + 1)
    data = {
        "png": iccp(b"name\0\0" + zlib.compress(huge)),
        "webp": files.riff(files.vp8x(4, 5), (b"ICCP", huge)),
        "jpeg": embed_in_jpeg(JPEG, huge),
    }[format_]
    with pytest.raises(InvalidImage, match="larger than 4 MiB"):
        read_profile(data, format_, 3)  # type: ignore[arg-type]


def test_a_profile_fits_only_pixels_of_its_colour_space() -> None:
    assert profile_for_channels(PROFILE, 3) == PROFILE
    assert profile_for_channels(PROFILE, 1) is None
    assert profile_for_channels(files.icc_profile(b"GRAY"), 1) is not None
    assert profile_for_channels(None, 3) is None
