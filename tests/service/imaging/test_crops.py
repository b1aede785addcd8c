from __future__ import annotations

import time
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engines.fill_rules import FillRule
from engines.manifest import FixedSize, MultipleSize, SizeRule
from service.core.batch_rows import Crop
from service.core.pictures import Box, Size
from service.imaging import crops
from service.imaging.crops import MAX_CROPS, MAX_TILES, plan_crops, plan_whole
from tests.service.imaging.hole_shapes import LIMITED, ellipses, ruled

PAD = MultipleSize(multiple_of=128, sides=(256, 512))
FIXED = FixedSize(height=256, width=256)
FIXED_CROP = FixedSize(height=128, width=256, fit="crop")
RULES: dict[str, SizeRule] = {
    "pad": PAD,
    "small": MultipleSize(multiple_of=32, sides=(64, 128)),
    "limited": LIMITED,
    "stretch": MultipleSize(multiple_of=4, sides=(256, 512), fit="resize"),
    "fixed": FIXED,
    "fixed crop": FIXED_CROP,
    "measured": ruled(
        FillRule(longest_side=256, radius=24, strategy="whole"),
        FillRule(longest_side=1024, strategy="crop", max_hole_radius=32),
    ),
    "tiny": MultipleSize(multiple_of=1, sides=(2,)),
}


def painted(mask: NDArray[np.bool_], crops: list[Crop]) -> NDArray[np.intp]:
    """Return for each pixel the number of crops that fill it."""
    count = np.zeros(mask.shape, np.intp)
    for crop in crops:
        part = (slice(crop.box.top, crop.box.bottom), slice(crop.box.left, crop.box.right))
        count[part] += mask[part] if crop.hole is None else crop.hole
    return count


def check(mask: NDArray[np.bool_], crops: list[Crop], rule: SizeRule) -> None:
    height, width = mask.shape
    np.testing.assert_array_equal(painted(mask, crops), mask)
    for crop in crops:
        box, size = crop.box, crop.box.size
        assert 0 <= box.top < box.bottom <= height
        assert 0 <= box.left < box.right <= width
        assert tuple(crop.tile) in set(rule.tile_sizes())
        assert crop.scaled.height <= crop.tile.height
        assert crop.scaled.width <= crop.tile.width
        if rule.fit == "resize":
            assert crop.scaled == crop.tile
        else:
            assert crop.scaled.height <= size.height
            assert crop.scaled.width <= size.width
            ratios = size.height / crop.scaled.height, size.width / crop.scaled.width
            assert min(crop.scaled) < 20 or ratios[0] == pytest.approx(ratios[1], rel=0.06)


@st.composite
def masks(draw: st.DrawFn) -> NDArray[np.bool_]:
    height, width = draw(st.sampled_from([(1, 1), (17, 23), (1, 900), (900, 1), (300, 700), (513, 512), (1201, 803)]))
    mask = np.zeros((height, width), np.uint8)
    for _ in range(draw(st.integers(1, 6))):
        x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
        kind = draw(st.sampled_from(["dot", "ellipse", "line", "box"]))
        x2, y2 = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
        if kind == "dot":
            mask[y, x] = 1
        elif kind == "ellipse":
            cv2.ellipse(mask, (x, y), (1 + abs(x2 - x) // 3, 1 + abs(y2 - y) // 3), 0, 0, 360, 1, -1)
        elif kind == "line":
            cv2.line(mask, (x, y), (x2, y2), 1, draw(st.integers(1, 50)))
        else:
            mask[min(y, y2) : max(y, y2) + 1, min(x, x2) : max(x, x2) + 1] = 1
    return mask.astype(np.bool_)


@settings(max_examples=40)
@given(masks(), st.sampled_from(sorted(RULES)), st.sampled_from(["auto", "crop", "whole"]))
def test_every_masked_pixel_is_filled_once_by_a_crop_that_fits_its_tile(
    mask: NDArray[np.bool_], rule: str, strategy: Any
) -> None:
    check(mask, plan_crops(mask, RULES[rule], strategy), RULES[rule])


@settings(max_examples=60)
@given(masks(), st.sampled_from(sorted(RULES)))
def test_masks_that_are_filled_whole_are_planned_the_same_without_finding_holes(
    mask: NDArray[np.bool_], rule: str
) -> None:
    planned = plan_crops(mask, RULES[rule], "auto")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crops, "_smallest_crop_cost", lambda _: 0)
        looked_for = plan_crops(mask, RULES[rule], "auto")
    assert [(crop.box, crop.scaled, crop.tile) for crop in planned] == [
        (crop.box, crop.scaled, crop.tile) for crop in looked_for
    ]


def test_a_mask_whose_thickness_decides_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measure, measured = cv2.distanceTransform, []

    def counted(*arguments: Any) -> Any:
        measured.append(1)
        return measure(*arguments)

    monkeypatch.setattr(cv2, "distanceTransform", counted)
    thick = ruled(FillRule(radius=48, strategy="whole"), FillRule(strategy="crop", max_hole_radius=32))
    (crop,) = plan_crops(ellipses((256, 256), (128, 128, 60, 60)), thick, "auto")
    assert len(measured) == 1
    assert crop.scaled != crop.box.size, "it is scaled down"


@settings(max_examples=10)
@given(st.floats(0.0001, 0.5), st.integers(0, 5), st.sampled_from(["pad", "small", "limited", "fixed crop"]))
def test_noise_is_filled_once_too(share: float, seed: int, rule: str) -> None:
    mask = np.random.default_rng(seed).random((700, 900)) < share
    mask[5, 5] = True
    check(mask, plan_crops(mask, RULES[rule], "crop"), RULES[rule])


@pytest.mark.parametrize(
    ("size", "tile"), [((17, 23), (256, 256)), ((256, 257), (256, 512)), ((512, 100), (512, 256))], ids=str
)
def test_a_picture_that_fits_a_tile_is_padded_whole(size: tuple[int, int], tile: tuple[int, int]) -> None:
    (crop,) = plan_crops(ellipses(size, (5, 5, 2, 2)), PAD, "whole")
    assert crop == Crop(Box(0, 0, *size), Size(*size), Size(*tile))


@pytest.mark.parametrize(
    ("size", "holes"),
    [
        pytest.param((17, 23), [(5, 5, 2, 2)], id="a crop would be no smaller"),
        pytest.param(
            (500, 500), [(60, 60, 20, 20), (440, 440, 20, 20), (60, 440, 20, 20)], id="three crops cost as much"
        ),
        pytest.param((500, 500), [(250, 250, 120, 120)], id="a large hole"),
    ],
)
def test_a_small_picture_is_filled_whole_by_default(
    size: tuple[int, int], holes: list[tuple[int, int, int, int]]
) -> None:
    (crop,) = plan_crops(ellipses(size, *holes), PAD, "auto")
    assert crop.box == Box(0, 0, *size)


def test_a_small_picture_with_a_small_hole_is_cropped_where_that_computes_half_as_much_or_less() -> None:
    (crop,) = plan_crops(ellipses((500, 500), (250, 250, 10, 10)), PAD, "auto")
    assert crop == Crop(Box(122, 122, 378, 378), Size(256, 256), Size(256, 256))


def test_a_larger_picture_is_cropped_or_if_asked_scaled_down() -> None:
    mask = ellipses((3000, 4000), (2000, 1500, 30, 20))
    (crop,) = plan_crops(mask, PAD, "auto")
    assert crop == Crop(Box(1372, 1872, 1628, 2128), Size(256, 256), Size(256, 256))
    (whole,) = plan_crops(mask, PAD, "whole")
    assert whole == Crop(Box(0, 0, 3000, 4000), Size(384, 512), Size(512, 512))


def test_a_picture_that_fits_can_still_be_cropped() -> None:
    (crop,) = plan_crops(ellipses((500, 500), (60, 60, 10, 10)), PAD, "crop")
    assert crop.tile == Size(256, 256)


def test_a_crop_is_moved_inside_the_picture_and_stays_full() -> None:
    (crop,) = plan_crops(ellipses((3000, 4000), (3999, 0, 20, 20)), PAD, "auto")
    assert crop.box == Box(0, 3744, 256, 4000)


def test_context_is_half_the_hole_on_every_side() -> None:
    mask = np.zeros((3000, 4000), np.bool_)
    mask[1000:1200, 2000:2240] = True
    (crop,) = plan_crops(mask, PAD, "auto")
    assert crop.tile == Size(512, 512)
    assert crop.box.top <= 900
    assert crop.box.bottom >= 1300
    assert crop.box.left <= 1880
    assert crop.box.right >= 2360


def test_context_is_reduced_before_resolution() -> None:
    mask = np.zeros((3000, 4000), np.bool_)
    mask[1000:1440, 2000:2440] = True  # a context of half the hole on each side would need 880 pixels
    (crop,) = plan_crops(mask, PAD, "auto")
    assert crop.scaled == crop.box.size == Size(512, 512)


def test_a_hole_larger_than_a_tile_is_scaled_down_with_its_context() -> None:
    (crop,) = plan_crops(ellipses((3000, 4000), (2000, 1500, 600, 300)), PAD, "auto")
    assert crop.tile == crop.scaled == Size(256, 512)
    assert crop.box.size.width == pytest.approx(2400, abs=5)


def test_two_near_holes_share_a_tile_and_two_far_ones_do_not() -> None:
    near = plan_crops(ellipses((3000, 4000), (2000, 1500, 30, 30), (2100, 1500, 30, 30)), PAD, "auto")
    far = plan_crops(ellipses((3000, 4000), (500, 500, 30, 30), (3500, 2500, 30, 30)), PAD, "auto")
    assert [crop.tile for crop in near] == [Size(256, 256)]
    assert [crop.tile for crop in far] == [Size(256, 256)] * 2


def test_overlapping_crops_are_merged_where_one_tile_costs_no_more() -> None:
    (crop,) = plan_crops(ellipses((3000, 4000), (2000, 1500, 60, 30), (2200, 1500, 60, 30)), PAD, "auto")
    assert crop.tile == Size(256, 512)


def test_a_long_wire_is_filled_at_full_resolution() -> None:
    mask = cv2.line(np.zeros((3000, 4000), np.uint8), (100, 100), (3900, 2900), 1, 7).astype(np.bool_)
    crops = plan_crops(mask, PAD, "auto")
    check(mask, crops, PAD)
    assert 8 <= len(crops) <= 20
    assert all(crop.scaled == crop.box.size for crop in crops)


def test_with_strategy_crop_a_thick_hole_is_scaled_down_and_its_neighbour_is_not() -> None:
    mask = ellipses((3000, 4000), (2000, 1500, 96, 96), (2200, 1500, 10, 10))
    crops = plan_crops(mask, LIMITED, "crop")
    check(mask, crops, LIMITED)
    shrink = sorted(crop.box.size.width / crop.scaled.width for crop in crops)
    assert shrink[0] == 1
    assert shrink[1] == pytest.approx(3, rel=0.05)
    (together,) = plan_crops(mask, LIMITED, "auto")
    assert together.scaled == together.box.size


def test_a_picture_that_fits_a_tile_is_scaled_down_only_if_crops_are_asked_for() -> None:
    mask = ellipses((500, 500), (250, 250, 100, 100))
    for strategy in ("auto", "whole"):
        (whole,) = plan_crops(mask, LIMITED, strategy)
        assert whole == Crop(Box(0, 0, 500, 500), Size(500, 500), Size(512, 512))
    (crop,) = plan_crops(mask, LIMITED, "crop")
    assert crop.scaled.width == pytest.approx(160, abs=8)


def test_a_fixed_size_is_resized_whole_unless_crops_are_asked_for() -> None:
    mask = ellipses((900, 1200), (600, 500, 20, 20))
    (auto,) = plan_crops(mask, FIXED, "auto")
    assert auto == Crop(Box(0, 0, 900, 1200), Size(256, 256), Size(256, 256))
    (crop,) = plan_crops(mask, FIXED, "crop")
    assert crop.box.size == Size(256, 256)


def test_a_fixed_size_that_allows_crops_is_cropped() -> None:
    (crop,) = plan_crops(ellipses((900, 1200), (600, 500, 20, 20)), FIXED_CROP, "auto")
    assert crop.box.size == crop.scaled == crop.tile == Size(128, 256)


SPECKLED = {
    "a thousand speckles": lambda rng: rng.random((3000, 4000)) < 1e-4,
    "a hundred thousand": lambda rng: rng.random((3000, 4000)) < 1e-2,
    "noise": lambda rng: rng.random((3000, 4000)) < 0.4,
    "two thousand discs": lambda rng: np.tile(ellipses((75, 80), (40, 38, 36, 36)), (40, 50)),
}


@pytest.mark.parametrize("name", SPECKLED)
@pytest.mark.parametrize("rule", [PAD, LIMITED], ids=["pad", "limited"])
def test_any_mask_of_12_megapixels_has_a_bounded_plan(name: str, rule: SizeRule) -> None:
    mask = SPECKLED[name](np.random.default_rng(0))
    started = time.process_time()
    crops = plan_crops(mask, rule, "auto")
    assert time.process_time() - started < 5  # about 0.3 s
    assert len(crops) <= MAX_CROPS
    assert sum(crop.tile.height * crop.tile.width for crop in crops) <= MAX_TILES * 512 * 512
    np.testing.assert_array_equal(painted(mask, crops), mask)


def test_a_full_mask_is_one_crop() -> None:
    (crop,) = plan_crops(np.ones((3000, 4000), np.bool_), PAD, "auto")
    assert crop.box == Box(0, 0, 3000, 4000)


@pytest.mark.parametrize(
    ("rule", "size", "scaled", "tile"),
    [
        (PAD, (200, 300), (200, 300), (256, 512)),
        (PAD, (1024, 100), (512, 50), (512, 256)),
        (PAD, (1, 4000), (1, 512), (256, 512)),
        (RULES["stretch"], (200, 300), (256, 512), (256, 512)),
        (RULES["stretch"], (3000, 4000), (512, 512), (512, 512)),
        (FIXED, (17, 23), (256, 256), (256, 256)),
        (FIXED_CROP, (100, 1000), (26, 256), (128, 256)),
    ],
    ids=str,
)
def test_a_whole_picture_is_padded_or_resized_as_the_rule_says(
    rule: SizeRule, size: tuple[int, int], scaled: tuple[int, int], tile: tuple[int, int]
) -> None:
    assert plan_whole(Size(*size), rule) == Crop(Box(0, 0, *size), Size(*scaled), Size(*tile))
