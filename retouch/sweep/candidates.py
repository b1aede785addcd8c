"""The candidates that a sweep compares: each is a size rule and a strategy for the service's own planner. Pure."""

from __future__ import annotations

from typing import NamedTuple

from engines.fill_rules import FillRule, FillRules
from engines.manifest import SizeRule
from service.core.batch_rows import Strategy

LIMITS = (96, 48)
"""Candidate radii, in tile pixels, that thicker holes are scaled down to."""


class Candidate(NamedTuple):
    """A size rule, a strategy, and the rule that makes `auto` fill like this; None if it is only compared."""

    size: SizeRule
    strategy: Strategy
    rule: FillRule | None


def rule_candidates(size: SizeRule) -> dict[str, Candidate]:
    """Return the candidates by name, the simplest first: whole, crops, and crops with a limit on the holes' radius."""
    rules = {
        "whole": FillRule(strategy="whole"),
        "crops": FillRule(strategy="crop"),
        **{f"crops, radius {limit}": FillRule(strategy="crop", max_hole_radius=limit) for limit in LIMITS},
    }
    return {
        name: Candidate(size.model_copy(update={"auto": FillRules(measured="a try", rules=(rule,))}), "auto", rule)
        for name, rule in rules.items()
    }


def served_strategies(size: SizeRule) -> dict[str, Candidate]:
    """Return the strategies of requests by name: `whole`, `crop` and `auto`."""
    return {
        "strategy=whole": Candidate(size, "whole", None),
        "strategy=crop": Candidate(size, "crop", None),
        "strategy=auto": Candidate(size, "auto", None),
    }
