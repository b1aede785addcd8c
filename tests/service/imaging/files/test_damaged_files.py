"""Truncated, damaged or rare files: refused, or decoded as other decoders do."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from service.core.errors import InvalidImage, ServiceError
from service.core.pictures import Size
from service.imaging.files.codec import decode, encode
from tests.serving import image_files as files
from tests.serving.sample_files import LIMIT, PHOTO, PROFILE, joined, noise, pillow

# Corrupt and hostile data

WHOLE = {
    "jpeg": files.saved(PHOTO, "JPEG", quality=90),
    "progressive jpeg": files.saved(PHOTO, "JPEG", progressive=True),
    "png": files.saved(PHOTO, "PNG"),
    "png of 16 bits": files.png(noise(np.uint16, 3, (60, 50))),
    "palette png": files.saved(np.asarray(Image.fromarray(PHOTO).quantize(64).convert("RGB")), "PNG"),
    "webp": files.saved(PHOTO, "WEBP"),
    "lossless webp": files.saved(PHOTO, "WEBP", lossless=True),
    "webp with profile": files.saved(PHOTO, "WEBP", icc_profile=PROFILE),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_truncated_file_never_gives_a_picture(name: str) -> None:
    data = WHOLE[name]
    decode(data, max_pixels=LIMIT)
    ends = {*range(64), *range(64, len(data), max(1, len(data) // 60)), *range(len(data) - 24, len(data))}
    for end in sorted(ends):
        with pytest.raises(ServiceError) as raised:
            decode(data[:end], max_pixels=LIMIT)
        assert raised.value.status in (400, 415)


@pytest.mark.parametrize("name", ["jpeg", "progressive jpeg"])
def test_a_jpeg_cut_in_the_middle_but_ended_properly_is_refused(name: str) -> None:
    for share in (0.3, 0.6, 0.9):
        with pytest.raises(InvalidImage, match="truncated or corrupt"):
            decode(WHOLE[name][: int(len(WHOLE[name]) * share)] + b"\xff\xd9", max_pixels=LIMIT)


@pytest.mark.parametrize("name", ["png", "png of 16 bits"])
def test_any_changed_byte_of_a_png_is_detected(name: str) -> None:
    data = WHOLE[name]
    expected = decode(data, max_pixels=LIMIT)
    for at in range(8, len(data), max(1, len(data) // 200)):
        changed = bytearray(data)
        changed[at] ^= 0x10
        with suppress(ServiceError):
            np.testing.assert_array_equal(decode(bytes(changed), max_pixels=LIMIT).pixels, expected.pixels)


def test_harmless_bytes_of_real_cameras_are_tolerated() -> None:
    expected = decode(WHOLE["jpeg"], max_pixels=LIMIT).pixels
    padded = WHOLE["jpeg"][:-2] + b"\0\0\0\xff\xd9" + b"trailer of the camera"
    np.testing.assert_array_equal(decode(padded, max_pixels=LIMIT).pixels, expected)
    odd_scan = bytearray(WHOLE["jpeg"])
    at = odd_scan.index(b"\xff\xda")
    odd_scan[at + 12] = 0  # the scan's last coefficient, which baseline decoders ignore
    np.testing.assert_array_equal(decode(bytes(odd_scan), max_pixels=LIMIT).pixels, expected)


def test_a_jpeg_of_hundreds_of_scans_is_refused_before_decoding() -> None:
    data = WHOLE["progressive jpeg"]
    last = data.rindex(b"\xff\xda")
    with pytest.raises(InvalidImage, match="scans; at most 100"):
        decode(data[:-2] + data[last:-2] * 200 + b"\xff\xd9", max_pixels=LIMIT)


@pytest.mark.parametrize("first", [(1 << 16) - 2, (1 << 16) - 1, 1 << 16])
def test_a_scan_counts_wherever_its_marker_lies(first: int) -> None:
    before = WHOLE["jpeg"].ljust(first, b"\0")  # one scan of its own, then a trailer
    assert decode(before + b"\xff\xda" * 99, max_pixels=LIMIT).size == decode(WHOLE["jpeg"], max_pixels=LIMIT).size
    with pytest.raises(InvalidImage, match="101 scans; at most 100"):
        decode(before + b"\xff\xda" * 100, max_pixels=LIMIT)


def test_the_smallest_webp_is_shorter_than_opencv_expects_and_still_read(capfd: pytest.CaptureFixture[str]) -> None:
    tiny = files.riff((b"VP8L", bytes.fromhex("2f00000000888808")))  # five prefix codes with one symbol each
    assert len(tiny) == 28
    np.testing.assert_array_equal(decode(tiny, max_pixels=LIMIT).pixels, pillow(tiny, "RGB"))
    assert capfd.readouterr() == ("", "")


def test_a_webp_with_broken_pixels_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidImage, match="WebP is truncated or corrupt"):
        decode(files.riff(files.vp8l_header(40, 40)), max_pixels=LIMIT)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=30)
@given(st.data())
def test_mutations_raise_nothing_but_service_errors(name: str, draw: st.DataObject) -> None:
    changed = bytearray(WHOLE[name])
    for at in draw.draw(st.lists(st.integers(0, len(changed) - 1), min_size=1, max_size=8)):
        changed[at] = draw.draw(st.integers(0, 255))
    with suppress(ServiceError):
        decode(bytes(changed), max_pixels=LIMIT)


def test_bad_files_print_nothing_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    for data in WHOLE.values():
        for end in (len(data) // 2, len(data) - 3):
            with pytest.raises(InvalidImage):
                decode(data[:end], max_pixels=LIMIT)
        changed = bytearray(data)
        changed[len(data) // 2] ^= 0xFF
        with suppress(InvalidImage):
            decode(bytes(changed), max_pixels=LIMIT)
    assert capfd.readouterr() == ("", "")


def test_large_pictures_decode_without_warnings_or_a_limit_of_pillows() -> None:
    large = files.png_bomb(9_500)  # 90 megapixels: Pillow warns from 89
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(large, max_pixels=10**9).size == Size(9_500, 9_500)


def test_several_threads_decode_and_encode_at_once() -> None:
    expected = {name: joined(decode(data, max_pixels=LIMIT)) for name, data in WHOLE.items()}

    def once(name: str) -> bool:
        picture = decode(WHOLE[name], max_pixels=LIMIT)
        again = decode(encode(picture, "png", 1), max_pixels=LIMIT)
        return bool((joined(picture) == expected[name]).all() and (joined(again) == expected[name]).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(once, list(WHOLE) * 4))


def test_a_jpeg_with_the_rare_subsampling_441_is_decoded_like_any_other() -> None:
    """Found by fuzzing: simplejpeg has no name for it and answered with a KeyError."""
    data = files.jpeg_441()
    expected = cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    assert np.array_equal(decode(data, max_pixels=10_000).pixels, expected)
    with pytest.raises(InvalidImage):
        decode(data[: len(data) // 2], max_pixels=10_000)
