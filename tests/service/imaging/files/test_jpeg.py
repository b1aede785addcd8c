"""JPEGs in strips, and strips of JPEGs and PNGs that are encoded before the rest of the picture is known."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from engines.manifest import MultipleSize
from service.core.pictures import ImageFormat, Picture
from service.imaging.crops import plan_whole
from service.imaging.files.codec import decode, encode, strips_ahead
from service.imaging.files.jpeg import MAX_STRIPS, Chroma, choose_chroma, encode_jpeg
from service.imaging.files.scanlines import ScanlinesKernel, installed_kernel
from service.imaging.pool.parallel_steps import run_sequentially
from service.imaging.postprocess import paste_fills
from tests.service.extensions import required

T = TypeVar("T")
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
    jpeg = encode_jpeg(pixels, 90, chroma, run_sequentially)
    colours, sampling = ("RGB", chroma) if channels == 3 else ("GRAY", "Gray")
    whole = simplejpeg.encode_jpeg(pixels, 90, colours, sampling)
    assert restarts(whole) == 0 < restarts(jpeg) < MAX_STRIPS
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
    assert encode_jpeg(pixels, 90, "444", run_sequentially) == simplejpeg.encode_jpeg(pixels, 90, "RGB", "444")


def test_a_picture_whose_strips_have_more_blocks_than_the_format_counts_is_encoded_whole() -> None:
    pixels = np.zeros((5000, 9000, 1), np.uint8)
    assert restarts(encode_jpeg(pixels, 90, "444", run_sequentially)) == 0


def test_the_file_does_not_depend_on_the_order_in_which_strips_are_made() -> None:
    def backwards(pieces: Sequence[Callable[[], Any]]) -> list[Any]:
        return [piece() for piece in reversed(pieces)][::-1]

    pixels = photo(700, 600)
    assert encode_jpeg(pixels, 90, "444", backwards) == encode_jpeg(pixels, 90, "444", run_sequentially)


def test_a_profile_and_strips_go_into_one_file() -> None:
    profile = bytearray(200)
    profile[:4], profile[16:20], profile[36:40] = (200).to_bytes(4, "big"), b"RGB ", b"acsp"
    pixels = photo(600, 600)
    picture = decode(encode(Picture(pixels, None, bytes(profile)), "jpeg", 95), max_pixels=LIMIT)
    assert picture.icc == bytes(profile)
    assert np.abs(picture.pixels.astype(int) - pixels).mean() < 4


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("file_format", ["jpeg", "png"])
def test_a_file_is_the_same_whether_its_unchanged_strips_were_encoded_before_or_not(
    file_format: ImageFormat, halved: bool
) -> None:
    required(installed_kernel())
    picture, counted = Picture(photo(512, 512), None, None, halved), list[int]()
    ahead = strips_ahead(picture, file_format, 90, [range(200, 250)])
    assert [(rows.start, rows.stop) for rows in ahead] == [(0, 128), (256, 384), (384, 512)]
    for encode_strip in ahead.values():
        encode_strip()
    picture.pixels[200:250, 300:] = 77

    def run_steps(pieces: Sequence[Callable[[], T]]) -> list[T]:
        counted.append(len(pieces))
        return run_sequentially(pieces)

    file = encode(picture, file_format, 90, run_steps, ahead)
    assert file == encode(picture, file_format, 90)
    assert counted == [1], "only the strip that has changed is encoded now"


@pytest.mark.parametrize("file_format", ["jpeg", "png"])
@pytest.mark.parametrize(
    ("changed", "unchanged"),
    [(range(129, 130), 3), (range(127, 128), 2), (range(128, 256), 2), (range(130, 257), 2), (range(512), 0)],
)
def test_a_strip_that_touches_changed_rows_is_left_as_it_may_depend_on_the_row_above(
    file_format: ImageFormat, changed: range, unchanged: int
) -> None:
    required(installed_kernel())
    assert len(strips_ahead(Picture(photo(512, 512)), file_format, 90, [changed])) == unchanged


def test_what_is_encoded_in_one_piece_is_not_begun_before() -> None:
    nowhere: list[range] = []
    deep, see_through = photo(512, 512).astype(np.uint16), photo(512, 512, 1)[:, :, 0]
    assert not strips_ahead(Picture(photo(512, 512)), "webp", 90, nowhere)
    for file_format in ("jpeg", "png"):
        assert not strips_ahead(Picture(deep), file_format, 90, nowhere)  # type: ignore[arg-type]
        assert not strips_ahead(Picture(photo(512, 512), see_through), file_format, 90, nowhere)  # type: ignore[arg-type]


def test_a_png_of_which_every_strip_changes_is_not_searched_for_repetitions_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    required(installed_kernel())
    estimated: list[object] = []
    monkeypatch.setattr(ScanlinesKernel, "estimate", lambda *arguments: estimated.append(arguments))
    assert not strips_ahead(Picture(photo(512, 512)), "png", 90, [range(512)])
    assert not estimated


def test_nothing_of_a_drawing_is_packed_ahead_as_it_is_searched_for_repetitions_at_the_end() -> None:
    required(installed_kernel())
    drawing = np.full((512, 512, 3), 255, np.uint8)
    drawing[::16, 7:300] = 30
    assert not strips_ahead(Picture(drawing), "png", 90, [range(200, 250)])


def test_a_picture_that_turns_out_to_have_repetitions_is_searched_for_them_all_the_same() -> None:
    required(installed_kernel())
    picture = Picture(photo(512, 512))
    ahead = strips_ahead(picture, "png", 90, [range(300, 310)])
    picture.pixels[:] = 90
    assert encode(picture, "png", 90, ahead=ahead) == encode(picture, "png", 90)
