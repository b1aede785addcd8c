from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from engines.manifest import MultipleSize
from service.core.pictures import Picture
from service.imaging.crops import plan_whole
from service.imaging.files.codec import decode, encode
from service.imaging.files.jpeg import MOST_STRIPS, Chroma, choose_chroma, encode_jpeg
from service.imaging.pool.parallel_steps import run_one_by_one
from service.imaging.postprocess import paste_fills

LIMIT = 10**8


def photo(height: int, width: int, channels: int = 3) -> Any:
    noise = np.random.default_rng(height * width).integers(0, 256, (height, width, channels), np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 2).reshape(height, width, channels)


def restarts(jpeg: bytes) -> int:
    return sum(jpeg.count(bytes((0xFF, 0xD0 + number))) for number in range(8))


@pytest.mark.parametrize("size", [(512, 512), (513, 511), (1000, 300), (300, 1001), (257, 2000), (2049, 1031)], ids=str)
@pytest.mark.parametrize(("chroma", "channels"), [("444", 3), ("420", 3), ("444", 1)], ids=["444", "420", "grey"])
def test_strips_decode_to_the_pixels_of_one_pass(size: tuple[int, int], chroma: Chroma, channels: int) -> None:
    pixels = photo(*size, channels)
    jpeg = encode_jpeg(pixels, 90, chroma, run_one_by_one)
    colours, sampling = ("RGB", chroma) if channels == 3 else ("GRAY", "Gray")
    whole = simplejpeg.encode_jpeg(pixels, 90, colours, sampling)
    assert restarts(whole) == 0 < restarts(jpeg) < MOST_STRIPS
    assert np.array_equal(simplejpeg.decode_jpeg(jpeg, colours), simplejpeg.decode_jpeg(whole, colours))
    with Image.open(io.BytesIO(jpeg)) as image:
        image.load()
        assert image.size == (size[1], size[0])
    assert len(jpeg) < len(whole) * 1.01


@pytest.mark.parametrize(
    ("quality", "halved", "chroma"),
    [(89, False, "420"), (90, False, "444"), (90, True, "420"), (95, True, "420"), (96, True, "444"), (1, True, "420")],
)
def test_colours_that_had_half_the_size_get_the_whole_one_at_the_highest_qualities_alone(
    quality: int, halved: bool, chroma: Chroma
) -> None:
    assert choose_chroma(quality, halved=halved) == chroma


@pytest.mark.parametrize("chroma", ["444", "422", "420"])
def test_a_filled_jpeg_has_halved_colours_if_the_upload_had(chroma: str) -> None:
    upload = simplejpeg.encode_jpeg(photo(64, 64), 90, "RGB", chroma)
    picture = decode(upload, max_pixels=LIMIT)
    hole = np.zeros((64, 64), np.bool_)
    hole[20:30, 20:30] = True
    crop = plan_whole(picture.size, MultipleSize(multiple_of=64, sides=(64,)))
    filled = paste_fills(picture, hole, [crop], [np.zeros((64, 64, 3), np.uint8)])
    written = simplejpeg.decode_jpeg_header(encode(filled, "jpeg", 90))[3]
    assert written == ("420" if chroma == "420" else "444")


def test_a_picture_too_small_to_share_is_what_the_library_makes_of_it() -> None:
    pixels = photo(256, 256)
    assert encode_jpeg(pixels, 90, "444", run_one_by_one) == simplejpeg.encode_jpeg(pixels, 90, "RGB", "444")


def test_a_picture_whose_strips_have_more_blocks_than_the_format_counts_is_encoded_whole() -> None:
    pixels = np.zeros((5000, 9000, 1), np.uint8)
    assert restarts(encode_jpeg(pixels, 90, "444", run_one_by_one)) == 0


def test_the_file_does_not_depend_on_the_order_in_which_strips_are_made() -> None:
    def backwards(pieces: Sequence[Callable[[], Any]]) -> list[Any]:
        return [piece() for piece in reversed(pieces)][::-1]

    pixels = photo(700, 600)
    assert encode_jpeg(pixels, 90, "444", backwards) == encode_jpeg(pixels, 90, "444", run_one_by_one)


def test_a_profile_and_strips_go_into_one_file() -> None:
    profile = bytearray(200)
    profile[:4], profile[16:20], profile[36:40] = (200).to_bytes(4, "big"), b"RGB ", b"acsp"
    pixels = photo(600, 600)
    picture = decode(encode(Picture(pixels, None, bytes(profile)), "jpeg", 95), max_pixels=LIMIT)
    assert picture.icc == bytes(profile)
    assert np.abs(picture.pixels.astype(int) - pixels).mean() < 4
