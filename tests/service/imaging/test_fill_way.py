from __future__ import annotations

import pytest

from engines.fill_rules import FillRule
from engines.manifest import MultipleSize
from service.core.pictures import Size
from service.imaging.crops import plan_crops
from tests.service.imaging.hole_shapes import ellipses, ruled

PAD = MultipleSize(multiple_of=128, sides=(256, 512))


THICK_CROPS = FillRule(longest_side=512, strategy="crop", max_hole_radius=50)


def test_a_measured_rule_scales_thick_holes_of_small_pictures_down() -> None:
    rule = ruled(FillRule(longest_side=512, radius=64, strategy="whole"), THICK_CROPS)
    (thin,) = plan_crops(ellipses((500, 500), (250, 250, 60, 60)), rule, "auto")
    (thick,) = plan_crops(ellipses((500, 500), (250, 250, 100, 100)), rule, "auto")
    assert thin.scaled == Size(500, 500)
    assert thick.box.size.width / thick.scaled.width == pytest.approx(2, rel=0.05)


def test_a_measured_rule_takes_larger_pictures_whole() -> None:
    mask = ellipses((600, 1000), (500, 300, 40, 40))
    (whole,) = plan_crops(mask, ruled(FillRule(longest_side=1024, strategy="whole")), "auto")
    assert whole.scaled == Size(307, 512)
    (crop,) = plan_crops(mask, PAD, "auto")
    assert crop.scaled == crop.box.size


def test_what_is_asked_for_wins_over_measured_rules() -> None:
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
