"""The choice of rules: by quality, then time, never by chance; adjacent classes of one candidate share a rule."""

from __future__ import annotations

from engines.fill_rules import FillRule
from retouch.sweep.choosing import best_candidate, choose_rules
from retouch.sweep.measuring import CandidateMeasurement, CaseMeasurements

WHOLE, CROPS, SCALED = (
    FillRule(strategy="whole"),
    FillRule(strategy="crop"),
    FillRule(strategy="crop", max_hole_radius=32),
)
RULES = {"whole": WHOLE, "crops": CROPS, "scaled": SCALED}


def row(radius: float, size: int = 512, **figures: tuple[float, int]) -> CaseMeasurements:
    tried = {name: CandidateMeasurement(lpips, pixels, 1, 0.1) for name, (lpips, pixels) in figures.items()}
    return CaseMeasurements("a", size, "5-20 %", "boxes", size, radius, 0.1, tried)


def test_what_is_better_than_the_default_wins_though_it_computes_more():
    rows = [row(20, whole=(0.3, 400), crops=(0.31, 100), scaled=(0.36, 50))] * 2
    assert best_candidate(rows, RULES) == "whole"


def test_of_the_better_ones_the_best_wins():
    rows = [row(20, whole=(0.3, 400), crops=(0.31, 100), scaled=(0.29, 500))] * 2
    assert best_candidate(rows, RULES) == "scaled"


def test_of_what_is_as_good_the_least_work_wins():
    rows = [row(20, whole=(0.301, 50), crops=(0.3, 100), scaled=(0.36, 20))] * 2
    assert best_candidate(rows, RULES) == "whole"


def test_of_equals_the_default_wins():
    assert best_candidate([row(20, whole=(0.3, 4), crops=(0.3, 4), scaled=(0.3, 4))] * 2, RULES) == "crops"


def test_what_is_better_by_luck_does_not_win():
    lucky = row(20, whole=(0.1, 4), crops=(0.3, 4), scaled=(1, 4))
    unlucky = row(20, whole=(0.31, 4), crops=(0.3, 4), scaled=(1, 4))
    assert best_candidate([lucky, *[unlucky] * 9], RULES) == "crops"
    assert best_candidate([lucky, *[unlucky] * 2], RULES) == "crops"
    assert best_candidate([lucky] * 9 + [unlucky], RULES) == "whole"


def test_of_one_case_nothing_is_sure():
    assert best_candidate([row(20, whole=(0.1, 4), crops=(0.3, 4), scaled=(1, 4))], RULES) == "crops"


THIN = {"whole": (0.3, 400), "crops": (0.3, 100), "scaled": (0.3, 400)}
THICK = {"whole": (0.5, 400), "crops": (0.5, 400), "scaled": (0.4, 100)}


def test_each_size_has_rules_by_thickness_and_the_last_has_no_bound():
    rows = [row(10, **THIN)] * 8 + [row(50, **THIN)] * 8 + [row(120, **THICK)] * 8 + [row(300, **THICK)] * 8
    rows += [row(50, 1024, **THICK)] * 8
    assert choose_rules(rows, RULES) == (
        FillRule(longest_side=512, radius=64, strategy="crop"),
        FillRule(longest_side=512, strategy="crop", max_hole_radius=32),
        FillRule(longest_side=1024, strategy="crop", max_hole_radius=32),
    )


def test_a_class_of_few_cases_joins_its_neighbour():
    rows = [row(10, **THIN)] * 8 + [row(300, **THICK)] * 7
    assert choose_rules(rows, RULES) == (FillRule(longest_side=512, strategy="crop", max_hole_radius=32),)


def test_sizes_of_which_the_same_was_chosen_are_one_rule():
    rows = [row(50, size, **THIN) for size in (256, 512) for _ in range(8)] + [row(50, 1024, **THICK)] * 8
    assert choose_rules(rows, RULES) == (
        FillRule(longest_side=512, strategy="crop"),
        FillRule(longest_side=1024, strategy="crop", max_hole_radius=32),
    )
