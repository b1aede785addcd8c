"""The choice between crops and the whole picture: by measured rules, and before holes are found where possible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engines.fill_rules import FillRule, FillRules
from engines.manifest import MultipleSize
from service.core.pictures import Box, Size
from service.imaging.crops import plan_crops
from service.imaging.holes import bounding_box, two_windows_cover
from tests.service.imaging.hole_shapes import ellipses, ruled

SIDES = [(32, 64), (32, 48, 64), (16, 32, 64), (64,)]
UNLIMITED = 10**6
PAD = MultipleSize(multiple_of=128, sides=(256, 512))
THICK_CROPS = FillRule(longest_side=512, strategy="crop", max_hole_radius=50)


def rule(sides: tuple[int, ...], max_hole_radius: int | None) -> MultipleSize:
    """Return a model's rule; with a limit on the radius, even one that no hole reaches, the holes are always found."""
    rules = FillRules(
        measured="", rules=[FillRule(longest_side=1024, strategy="crop", max_hole_radius=max_hole_radius)]
    )
    return MultipleSize(multiple_of=16, sides=sides, auto=rules)


def some_boxes(seed: int, size: Size, most: int) -> NDArray[np.bool_]:
    rng = np.random.default_rng(seed)
    mask = np.zeros(size, np.bool_)
    for _ in range(int(rng.integers(1, most + 1))):
        height, width = rng.integers(1, 1 + np.maximum(1, np.array(size) // int(rng.integers(2, 12))))
        top, left = rng.integers(0, size.height - height + 1), rng.integers(0, size.width - width + 1)
        mask[top : top + height, left : left + width] = True
    return mask


@settings(max_examples=400)
@given(
    st.sampled_from(SIDES), st.tuples(st.integers(8, 64), st.integers(8, 64)), st.integers(0, 2**32), st.integers(1, 5)
)
def test_early_decisions_equal_those_from_the_holes(
    sides: tuple[int, ...], size: tuple[int, int], seed: int, holes: int
) -> None:
    mask = some_boxes(seed, Size(*size), holes)
    early, late = (plan_crops(mask, rule(sides, radius), "auto") for radius in (None, UNLIMITED))
    assert [(crop.box, crop.tile, crop.hole is None) for crop in early] == [
        (crop.box, crop.tile, crop.hole is None) for crop in late
    ]


@pytest.mark.parametrize("crops", [1, 2])
def test_crops_are_chosen_if_they_cost_half_of_the_whole(crops: int) -> None:
    mask = np.zeros((64, 64), np.bool_)
    mask[4:8, 4:8] = True
    mask[50:54, 50:54] = crops == 2
    assert len(plan_crops(mask, rule((32, 64), None), "auto")) == crops
    assert plan_crops(mask, rule((32, 64), None), "auto")[0].tile == Size(32, 32)


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 12), st.integers(1, 12))
def test_two_windows_cover_a_mask_exactly_if_some_two_positions_of_them_do(
    seed: int, boxes: int, height: int, width: int
) -> None:
    mask = some_boxes(seed, Size(12, 12), boxes)
    every = [
        Box(top, left, top + height, left + width)
        for top in range(max(1, 13 - height))
        for left in range(max(1, 13 - width))
    ]
    rests = []
    for one in every:
        rest = mask.copy()
        rest[one.top : one.bottom, one.left : one.right] = False
        rests.append(rest)
    found = any(not rest.any() or _fits(bounding_box(rest), height, width) for rest in rests)
    assert two_windows_cover(mask, bounding_box(mask), Size(height, width)) == found


def _fits(box: Box, height: int, width: int) -> bool:
    return box.size.height <= height and box.size.width <= width


def test_a_measured_rule_scales_thick_holes_of_small_pictures_down() -> None:
    rule = ruled(FillRule(longest_side=512, radius=64, strategy="whole"), THICK_CROPS)
    (thin,) = plan_crops(ellipses((500, 500), (250, 250, 60, 60)), rule, "auto")
    (thick,) = plan_crops(ellipses((500, 500), (250, 250, 100, 100)), rule, "auto")
    assert thin.scaled == Size(500, 500)
    assert thick.box.size.width / thick.scaled.width == pytest.approx(2, rel=0.05)


def test_a_measured_rule_fills_larger_pictures_whole() -> None:
    mask = ellipses((600, 1000), (500, 300, 40, 40))
    (whole,) = plan_crops(mask, ruled(FillRule(longest_side=1024, strategy="whole")), "auto")
    assert whole.scaled == Size(307, 512)
    (crop,) = plan_crops(mask, PAD, "auto")
    assert crop.scaled == crop.box.size


def test_the_requested_strategy_wins_over_measured_rules() -> None:
    mask, rule = ellipses((500, 500), (250, 250, 10, 10)), ruled(FillRule(strategy="whole"))
    (crop,) = plan_crops(mask, rule, "crop")
    assert crop.tile == Size(256, 256)
    (whole,) = plan_crops(mask, ruled(FillRule(strategy="crop")), "whole")
    assert whole.tile == Size(512, 512)


def test_a_picture_larger_than_any_rule_is_cropped_as_without_rules() -> None:
    mask = ellipses((3000, 4000), (2000, 1500, 96, 96), (2200, 1500, 10, 10))
    rule = ruled(FillRule(longest_side=1024, strategy="whole"))
    (crop,) = plan_crops(mask, rule, "auto")
    assert crop.scaled == crop.box.size
