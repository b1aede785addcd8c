"""Colourisation: predicted colours on the lightness of the upload."""

from __future__ import annotations

import cv2
import numpy as np

from service.core.pictures import Picture
from service.imaging.colours import apply_colours, lightness

RANDOM = np.random.default_rng(0)


def smooth(channels: int) -> np.ndarray:
    small = RANDOM.integers(40, 215, (6, 8, channels), np.uint8)
    return cv2.resize(small, (80, 60), interpolation=cv2.INTER_LINEAR).reshape(60, 80, channels)


def ab_of(pixels: np.ndarray) -> np.ndarray:
    lab = cv2.cvtColor(pixels.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    return np.rint((lab[:, :, 1:] / 220 + 0.5) * 255).astype(np.uint8)


def test_a_picture_painted_with_its_own_colours_is_itself_again() -> None:
    pixels = smooth(3)
    painted = apply_colours(Picture(pixels), ab_of(pixels))
    assert np.abs(painted.pixels.astype(int) - pixels).max() <= 4, "ab has steps of 0.86"


def test_colours_of_a_small_tile_are_put_on_the_full_resolution() -> None:
    noise = RANDOM.integers(0, 256, (60, 80, 1), np.uint8)
    painted = apply_colours(Picture(noise), np.full((15, 20, 2), 127, np.uint8))
    assert painted.pixels.shape == (60, 80, 3)
    assert np.abs(painted.pixels.astype(int) - noise).max() <= 3


def test_lightness_is_grey_on_its_own_scale_and_alpha_is_kept() -> None:
    white = Picture(np.full((2, 2, 3), 65535, np.uint16), np.full((2, 2), 257, np.uint16))
    assert lightness(white).pixels.tolist() == [[[255]] * 2] * 2
    painted = apply_colours(white, np.full((2, 2, 2), 127, np.uint8))
    assert painted.alpha is not None
    assert painted.alpha.tolist() == [[1, 1], [1, 1]]
