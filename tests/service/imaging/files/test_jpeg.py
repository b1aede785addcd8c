from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from service.core.pictures import Picture
from service.imaging.files.codec import decode, encode
from service.imaging.files.jpeg import MOST_STRIPS, encode_jpeg
from service.imaging.pool.parallel_steps import run_one_by_one

LIMIT = 10**8


def photo(height: int, width: int, channels: int = 3) -> Any:
    noise = np.random.default_rng(height * width).integers(0, 256, (height, width, channels), np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 2).reshape(height, width, channels)


def restarts(jpeg: bytes) -> int:
    return sum(jpeg.count(bytes((0xFF, 0xD0 + number))) for number in range(8))


@pytest.mark.parametrize("size", [(512, 512), (513, 511), (1000, 300), (300, 1001), (257, 2000), (2049, 1031)], ids=str)
@pytest.mark.parametrize(("quality", "channels"), [(92, 3), (75, 3), (90, 1)], ids=["444", "420", "grey"])
def test_strips_decode_to_the_pixels_of_one_pass(size: tuple[int, int], quality: int, channels: int) -> None:
    pixels = photo(*size, channels)
    jpeg = encode_jpeg(pixels, quality, run_one_by_one)
    colours, chroma = ("RGB", "444" if quality >= 90 else "420") if channels == 3 else ("GRAY", "Gray")
    whole = simplejpeg.encode_jpeg(pixels, quality, colours, chroma)
    assert restarts(whole) == 0 < restarts(jpeg) < MOST_STRIPS
    assert np.array_equal(simplejpeg.decode_jpeg(jpeg, colours), simplejpeg.decode_jpeg(whole, colours))
    with Image.open(io.BytesIO(jpeg)) as image:
        image.load()
        assert image.size == (size[1], size[0])
    assert len(jpeg) < len(whole) * 1.01


def test_a_picture_too_small_to_share_is_what_the_library_makes_of_it() -> None:
    pixels = photo(256, 256)
    assert encode_jpeg(pixels, 90, run_one_by_one) == simplejpeg.encode_jpeg(pixels, 90, "RGB", "444")


def test_a_picture_whose_strips_have_more_blocks_than_the_format_counts_is_encoded_whole() -> None:
    pixels = np.zeros((5000, 9000, 1), np.uint8)
    assert restarts(encode_jpeg(pixels, 90, run_one_by_one)) == 0


def test_the_file_does_not_depend_on_the_order_in_which_strips_are_made() -> None:
    def backwards(pieces: Sequence[Callable[[], Any]]) -> list[Any]:
        return [piece() for piece in reversed(pieces)][::-1]

    pixels = photo(700, 600)
    assert encode_jpeg(pixels, 90, backwards) == encode_jpeg(pixels, 90, run_one_by_one)


def test_a_profile_and_strips_go_into_one_file() -> None:
    profile = bytearray(200)
    profile[:4], profile[16:20], profile[36:40] = (200).to_bytes(4, "big"), b"RGB ", b"acsp"
    pixels = photo(600, 600)
    picture = decode(encode(Picture(pixels, None, bytes(profile)), "jpeg", 95), max_pixels=LIMIT)
    assert picture.icc == bytes(profile)
    assert np.abs(picture.pixels.astype(int) - pixels).mean() < 4
