"""The choice of the rules of `auto` from a sweep's figures: quality first, time second. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from engines.fill_rules import FillRule
from retouch.sweep.measuring import CaseMeasurements

DEFAULT = "crops"
"""The candidate of `auto` without a rule, apart from its treatment of thick holes."""
RADII = (16, 32, 64, 96, 128, 192, 256, 384)
"""Upper bounds of the classes of thickness, in pixels of the picture; the last class has none."""
TOLERANCE = 0.005
"""Fraction of the default's mean LPIPS by which a candidate may be worse and count as good; the cheapest is chosen."""
STANDARD_ERRORS = 2.0
"""Standard errors that are added to a mean difference before it is compared, so that no candidate wins by chance on
a few pictures."""
MIN_ROWS = 8
"""Least number of cases in a class of thickness; a smaller one is merged with the next."""


def choose_rules(rows: Sequence[CaseMeasurements], candidates: Mapping[str, FillRule]) -> tuple[FillRule, ...]:
    """Choose the candidate for each size of picture and thickness of hole, thin first.

    Neighbouring thicknesses, and neighbouring sizes, with the same choice become one rule. Sizes are upper bounds of
    the picture's longer side; pictures above the largest size get no rule.

    Args:
        rows: rows with figures for every candidate.
        candidates: the rule of each candidate, by name, the simplest first.
    """
    by_size: defaultdict[int, list[CaseMeasurements]] = defaultdict(list)
    for row in rows:
        by_size[row.longest_side].append(row)
    sizes = sorted(by_size)
    by_thickness = [_choose_by_thickness(by_size[size], candidates) for size in sizes]
    following = [*by_thickness[1:], None]
    return tuple(
        rule.model_copy(update={"longest_side": size})
        for size, rules, after in zip(sizes, by_thickness, following, strict=True)
        if rules != after
        for rule in rules
    )


def _choose_by_thickness(rows: Sequence[CaseMeasurements], candidates: Mapping[str, FillRule]) -> list[FillRule]:
    """Choose the candidate for each thickness of hole in pictures of one size, thin first."""
    classes = [(bound, best_candidate(members, candidates)) for bound, members in _group_by_radius(rows)]
    following = [name for _, name in classes[1:]] + [None]
    return [
        candidates[name].model_copy(update={"radius": None if math.isinf(bound) else round(bound)})
        for (bound, name), after in zip(classes, following, strict=True)
        if name != after
    ]


def best_candidate(rows: Sequence[CaseMeasurements], candidates: Mapping[str, FillRule]) -> str:
    """Return the best candidate that is significantly better than the default, or else the cheapest that is as good.

    Candidates are compared by their LPIPS on the same cases. The default counts as good as itself; of several equally
    cheap candidates the default is chosen, or else the first.
    """
    limit = TOLERANCE * fmean(row.tried[DEFAULT].lpips for row in rows)
    differences = {name: [row.tried[name].lpips - row.tried[DEFAULT].lpips for row in rows] for name in candidates}
    better = [name for name in candidates if _upper_confidence_limit(differences[name]) < 0]
    if better:
        return min(better, key=lambda name: fmean(differences[name]))
    good = [
        DEFAULT,
        *(name for name in candidates if name != DEFAULT and _upper_confidence_limit(differences[name]) <= limit),
    ]
    return min(good, key=lambda name: fmean(row.tried[name].pixels for row in rows))


def _upper_confidence_limit(differences: Sequence[float]) -> float:
    """Return the upper confidence limit of the mean; infinity for a single value."""
    if len(differences) < 2:
        return math.inf
    return fmean(differences) + STANDARD_ERRORS * stdev(differences) / math.sqrt(len(differences))


def _group_by_radius(rows: Sequence[CaseMeasurements]) -> list[tuple[float, list[CaseMeasurements]]]:
    """Group rows by thickness: each class's upper bound and at least `MIN_ROWS` rows, if there are so many."""
    found: list[tuple[float, list[CaseMeasurements]]] = []
    waiting = sorted(rows, key=lambda row: row.radius)
    for bound in (*map(float, RADII), math.inf):
        members = [row for row in waiting if row.radius <= bound]
        rest = len(waiting) - len(members)
        if math.isinf(bound) or (len(members) >= MIN_ROWS and rest >= MIN_ROWS):
            found.append((bound, members))
            waiting = waiting[len(members) :]
    return found
