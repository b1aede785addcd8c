"""The part of a mask file that is to be filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from service.core.errors import InvalidOption, TooLarge
from service.imaging.files.codec import decode_mask, measure_brightness
from tests.serving import image_files as files
from tests.serving.sample_files import LIMIT, RGB, noise

# Masks


def mask_of(pixels: NDArray[Any], mode: Any) -> NDArray[np.bool_]:
    return decode_mask(files.png(pixels), mode, max_pixels=LIMIT)


@pytest.mark.parametrize(("dtype", "half"), [(np.uint8, 128), (np.uint16, 32_768)])
@pytest.mark.parametrize("channels", [1, 3])
def test_white_fills_from_the_middle_up_and_black_below_it(dtype: Any, half: int, channels: int) -> None:
    values = np.array([0, half - 1, half, 2 * half - 1], dtype).reshape(1, 4, 1).repeat(channels, axis=2)
    np.testing.assert_array_equal(mask_of(values, "white"), [[False, False, True, True]])
    np.testing.assert_array_equal(mask_of(values, "black"), [[True, True, False, False]])


def test_coloured_masks_count_by_luminance() -> None:
    red_green = np.array([[[255, 0, 0], [0, 255, 0]]], np.uint8)
    np.testing.assert_array_equal(mask_of(red_green, "white"), [[False, True]])


def test_alpha_zero_and_nothing_else_is_filled() -> None:
    pixels = noise(np.uint8, 4, (1, 3))
    pixels[0, :, 3] = (0, 1, 255)
    np.testing.assert_array_equal(mask_of(pixels, "alpha"), [[True, False, False]])
    pixels[:, :, :3] = 255
    assert mask_of(pixels, "white").all()


def test_a_mask_without_alpha_cannot_be_used_in_alpha_mode() -> None:
    with pytest.raises(InvalidOption, match="this one has none") as raised:
        mask_of(RGB, "alpha")
    assert (raised.value.status, raised.value.code) == (422, "no_alpha")


def test_masks_are_turned_upright_too() -> None:
    pixels = np.zeros((4, 6, 1), np.uint8)
    pixels[0, 5] = 255
    mask = decode_mask(files.png(pixels, files.chunk(b"eXIf", files.exif(6))), "white", max_pixels=LIMIT)
    assert mask.shape == (6, 4)
    assert mask[5, 3]
    assert mask.sum() == 1


def test_one_bit_and_palette_masks_work() -> None:
    values = np.array([[0, 1, 1]])
    assert decode_mask(files.small_bits_png(values, 1, 0), "white", max_pixels=9).tolist() == [[False, True, True]]
    palette = files.chunk(b"PLTE", bytes((255,) * 3 + (0,) * 3))
    data = files.small_bits_png(values, 1, 3, palette)
    assert decode_mask(data, "white", max_pixels=9).tolist() == [[True, False, False]]


def test_the_brightness_of_a_mask_is_that_of_its_luminance() -> None:
    zeros_and_ones = np.eye(4, dtype=np.uint8)[:, :, None]
    assert measure_brightness(files.png(zeros_and_ones), max_pixels=LIMIT) == (0, 1, 128)
    assert measure_brightness(files.png(zeros_and_ones.repeat(3, axis=2)), max_pixels=LIMIT) == (0, 1, 128)
    assert measure_brightness(files.png(zeros_and_ones.astype(np.uint16)), max_pixels=LIMIT) == (0, 1, 32_768)
    red = np.array([[[255, 0, 0], [0, 0, 0]]], np.uint8)
    assert measure_brightness(files.png(red), max_pixels=LIMIT) == (0, 76, 128)


def test_the_pixel_limit_holds_for_masks() -> None:
    with pytest.raises(TooLarge):
        decode_mask(files.png_bomb(), "white", max_pixels=LIMIT)
