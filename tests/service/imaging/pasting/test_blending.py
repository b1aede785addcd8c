"""Fills pasted with OpenCV and numpy, the way without compiled code."""

from __future__ import annotations

import numpy as np

from service.imaging.pasting.blending import paste
from service.imaging.pasting.seam import find_seam


def test_a_fill_is_blended_over_the_seam_and_copied_behind_it() -> None:
    mask = np.zeros((1, 12), np.bool_)
    mask[0, 2:] = True
    picture, fill = np.full((1, 12, 3), 100, np.uint8), np.full((1, 12, 3), 200, np.uint8)
    paste(picture, fill, mask, find_seam(mask, 4))
    assert picture[0, :, 0].tolist() == [100, 100, 120, 140, 160, 180, 200, 200, 200, 200, 200, 200]
    assert fill.min() == 200, "the fill is not changed"


def test_pixels_of_another_crops_hole_are_left_alone() -> None:
    mask = np.zeros((1, 12), np.bool_)
    mask[0, 2:] = True
    hole = mask.copy()
    hole[0, 7:] = False
    picture = np.full((1, 12, 1), 100, np.uint16)
    paste(picture, np.full((1, 12, 1), 200, np.uint16), hole, find_seam(mask, 4))
    assert picture[0, 6:, 0].tolist() == [200, 100, 100, 100, 100, 100]
