"""A mask that cannot be meant is refused, with a hint at what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from service.errors import InvalidOption, SizesDiffer
from service.items import Size
from service.masks import fit_mask, measure_coverage


def test_a_mask_of_the_images_size_is_taken_as_it_is() -> None:
    mask = np.eye(4, dtype=np.bool_)
    assert fit_mask(mask, Size(4, 4), None) is mask


def test_a_mask_of_another_size_is_refused_and_both_sizes_are_named() -> None:
    with pytest.raises(SizesDiffer, match=r"image is 20×10 and the mask 8×4"):
        fit_mask(np.zeros((4, 8), np.bool_), Size(10, 20), None)


def test_a_mask_of_another_size_is_scaled_where_that_was_asked_for() -> None:
    mask = np.array([[True, False], [False, False]])
    scaled = fit_mask(mask, Size(4, 6), "nearest")
    assert scaled.shape == (4, 6)
    assert scaled.dtype == np.bool_
    assert scaled.sum() == 6
    assert scaled[:2, :3].all()


def test_coverage_is_the_share_of_pixels_to_fill() -> None:
    mask = np.zeros((10, 10), np.bool_)
    mask[0, :5] = True
    assert measure_coverage(mask, "white") == 0.05


@pytest.mark.parametrize(("value", "code"), [(False, "mask_empty"), (True, "mask_full")])
def test_an_empty_or_full_mask_is_refused(value: bool, code: str) -> None:
    with pytest.raises(InvalidOption, match="mask_mode=white") as refusal:
        measure_coverage(np.full((4, 4), value), "white")
    assert refusal.value.code == code
