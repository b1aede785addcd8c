from __future__ import annotations

import numpy as np

from service.imaging.files.pixels import to_8_bits, to_channels


def test_16_bits_become_8_by_rounding_and_back_without_loss() -> None:
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    np.testing.assert_array_equal(to_8_bits(values), np.round(values / 257))
    eight = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    np.testing.assert_array_equal(to_8_bits(eight.astype(np.uint16) * 257), eight)


def test_8_bits_stay_the_same_array() -> None:
    pixels = np.zeros((2, 3, 1), np.uint8)
    assert to_8_bits(pixels) is pixels


def test_grey_is_repeated_and_rgb_weighted() -> None:
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    np.testing.assert_array_equal(to_channels(grey, 3), grey.repeat(3, axis=2))
    red = np.zeros((2, 3, 3), np.uint8)
    red[:, :, 0] = 255
    np.testing.assert_array_equal(to_channels(red, 1), np.full((2, 3, 1), 76))
    assert to_channels(red, 3) is red
