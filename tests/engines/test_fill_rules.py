"""The first measured rule whose bounds hold decides."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from engines.fill_rules import FillRule, FillRules

THIN = FillRule(longest_side=512, radius=64, strategy="whole")
THICK = FillRule(longest_side=512, strategy="crop", max_hole_radius=96)
LARGE = FillRule(longest_side=1024, strategy="crop")
RULES = FillRules(measured="in a test", rules=(THIN, THICK, LARGE))


@pytest.mark.parametrize(
    ("longest_side", "radius", "rule"),
    [(256, 0, THIN), (512, 64, THIN), (512, 64.1, THICK), (513, 0, LARGE), (1024, 400, LARGE), (1025, 0, None)],
)
def test_the_first_rule_within_whose_bounds_a_mask_lies_decides(longest_side, radius, rule):
    assert RULES.decide(longest_side, radius) == rule


@pytest.mark.parametrize(("longest_side", "asks"), [(256, True), (512, True), (513, False), (2000, False)])
def test_a_mask_is_measured_only_where_its_thickness_decides(longest_side, asks):
    assert RULES.asks_for_radius(longest_side) is asks


@pytest.mark.parametrize("given", [{"strategy": "auto"}, {"strategy": "crop", "radius": 8}, {"radius": 64}])
def test_a_rule_that_says_nothing_clear_is_refused(given):
    with pytest.raises(ValidationError):
        FillRule.model_validate(given)


def test_rules_without_one_are_refused():
    with pytest.raises(ValidationError):
        FillRules(measured="nothing", rules=())
