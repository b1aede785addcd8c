"""Strips of a file that are encoded before the rest of the picture is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import cv2
import numpy as np
import pytest

from service.core.pictures import ImageFormat, Picture
from service.imaging.files.codec import encode, strips_ahead
from service.imaging.files.scanlines import installed_kernel
from service.imaging.pool.parallel_steps import run_one_by_one
from tests.service.extensions import required

T = TypeVar("T")


def photo(channels: int = 3) -> Any:
    noise = np.random.default_rng(1).integers(0, 256, (512, 512, channels), np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 2).reshape(512, 512, channels)


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("file_format", ["jpeg", "png"])
def test_a_file_is_the_same_whether_its_unchanged_strips_were_encoded_before_or_not(
    file_format: ImageFormat, halved: bool
) -> None:
    required(installed_kernel())
    picture, counted = Picture(photo(), None, None, halved), list[int]()
    ahead = strips_ahead(picture, file_format, 90, [range(200, 250)])
    assert [(rows.start, rows.stop) for rows in ahead] == [(0, 128), (256, 384), (384, 512)]
    for encode_strip in ahead.values():
        encode_strip()
    picture.pixels[200:250, 300:] = 77

    def side_by_side(pieces: Sequence[Callable[[], T]]) -> list[T]:
        counted.append(len(pieces))
        return run_one_by_one(pieces)

    file = encode(picture, file_format, 90, side_by_side, ahead)
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
    assert len(strips_ahead(Picture(photo()), file_format, 90, [changed])) == unchanged


def test_what_is_encoded_in_one_piece_is_not_begun_before() -> None:
    nowhere: list[range] = []
    deep, see_through = photo().astype(np.uint16), photo(1)[:, :, 0]
    assert not strips_ahead(Picture(photo()), "webp", 90, nowhere)
    for file_format in ("jpeg", "png"):
        assert not strips_ahead(Picture(deep), file_format, 90, nowhere)  # type: ignore[arg-type]
        assert not strips_ahead(Picture(photo(), see_through), file_format, 90, nowhere)  # type: ignore[arg-type]


def test_a_picture_that_turns_out_to_have_repetitions_is_searched_for_them_all_the_same() -> None:
    required(installed_kernel())
    picture = Picture(photo())
    ahead = strips_ahead(picture, "png", 90, [range(300, 310)])
    picture.pixels[:] = 90
    assert encode(picture, "png", 90, ahead=ahead) == encode(picture, "png", 90)
