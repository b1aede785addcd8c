"""Masks that are surely a mistake are refused with a hint at the cause."""

from __future__ import annotations

import numpy as np
import pytest

from service.core.errors import InvalidOption, SizesDiffer
from service.core.pictures import Brightness, MaskMode, Size
from service.imaging.masks import fit_mask, measure_coverage


def never_measured() -> Brightness:
    raise AssertionError("the mask's pixels were looked at again")


def test_a_mask_of_the_images_size_is_not_changed() -> None:
    mask = np.eye(4, dtype=np.bool_)
    assert fit_mask(mask, Size(4, 4), None) is mask


def test_a_mask_of_another_size_is_refused_and_both_sizes_are_named() -> None:
    with pytest.raises(SizesDiffer, match=r"image is 20×10 and the mask 8×4"):
        fit_mask(np.zeros((4, 8), np.bool_), Size(10, 20), None)


def test_a_mask_of_another_size_is_scaled_on_request() -> None:
    mask = np.array([[True, False], [False, False]])
    scaled = fit_mask(mask, Size(4, 6), "nearest")
    assert scaled.shape == (4, 6)
    assert scaled.dtype == np.bool_
    assert scaled.sum() == 6
    assert scaled[:2, :3].all()


def test_coverage_is_the_share_of_pixels_to_fill() -> None:
    mask = np.zeros((10, 10), np.bool_)
    mask[0, :5] = True
    assert measure_coverage(mask, "white", never_measured) == 0.05


@pytest.mark.parametrize(("value", "code"), [(False, "mask_empty"), (True, "mask_full")])
def test_an_empty_or_full_mask_is_refused(value: bool, code: str) -> None:
    constant = Brightness(255 * value, 255 * value, 128)
    with pytest.raises(InvalidOption, match=r"mask_mode=white .* check the mask and mask_mode") as refusal:
        measure_coverage(np.full((4, 4), value), "white", lambda: constant)
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("mode", "seen", "hint"),
    [
        ("white", Brightness(0, 1, 128), "1 of 255, and holes must be at least 128; multiply it by 255"),
        ("white", Brightness(0, 2, 128), "2 of 255, and holes must be at least 128; write them as 255"),
        ("white", Brightness(0, 255, 32_768), "255 of 65,535, and holes must be at least 32,768; write them as 65,535"),
        ("black", Brightness(0, 1, 128), "1 of 255, and what is kept must be at least 128; multiply it by 255"),
    ],
)
def test_a_mask_too_dark_to_have_white_pixels_is_refused_with_its_brightness(
    mode: MaskMode, seen: Brightness, hint: str
) -> None:
    with pytest.raises(InvalidOption) as refusal:
        measure_coverage(np.full((4, 4), mode == "black"), mode, lambda: seen)
    assert str(refusal.value).endswith(f"its brightest value is {hint}")


@pytest.mark.parametrize("seen", [Brightness(100, 100, 128), Brightness(0, 255, 128)])
def test_a_mask_of_one_value_and_one_that_lost_its_white_pixels_by_scaling_are_not_called_dark(
    seen: Brightness,
) -> None:
    with pytest.raises(InvalidOption, match="check the mask and mask_mode"):
        measure_coverage(np.zeros((4, 4), np.bool_), "white", lambda: seen)


def test_alpha_has_no_brightness() -> None:
    with pytest.raises(InvalidOption, match="check the mask and mask_mode"):
        measure_coverage(np.zeros((4, 4), np.bool_), "alpha", never_measured)
