"""The choice between filling a mask from the whole picture and from crops. Pure.

Strategy `auto` follows the rules measured for the model, in its manifest. Without rules it prefers quality: a picture
that fits the largest tile is filled whole, a larger one from crops, which keep its resolution.
"""

from __future__ import annotations

from typing import NamedTuple

from engines.manifest import FixedSize, SizeRule
from service.core.batch_rows import Strategy
from service.core.pictures import Bool2D
from service.imaging.holes import Depths, find_depths, largest_radius


class FillStrategy(NamedTuple):
    """The strategy that fills a mask.

    whole: always from the whole picture; otherwise from crops, although `plan` may still choose the whole picture.
    max_hole_radius: largest radius of a hole in a crop, in tile pixels; thicker holes are scaled down. None: no limit.
    depths: the depths of the mask's holes, if they were measured for the choice.
    """

    whole: bool
    max_hole_radius: int | None = None
    depths: Depths | None = None


def choose_fill_strategy(mask: Bool2D, rule: SizeRule, strategy: Strategy) -> FillStrategy:
    """Choose the strategy that fills a mask.

    Args:
        mask: H×W of the picture, True = fill.
        rule: the model's tile sizes and rules.
        strategy: the request's option: auto, whole or crop.
    """
    if strategy != "auto":
        return FillStrategy(strategy == "whole", rule.max_hole_radius)
    if isinstance(rule, FixedSize) and rule.fit == "resize":
        return FillStrategy(whole=True)
    longest = max(mask.shape)
    depths = find_depths(mask) if rule.auto and rule.auto.asks_for_radius(longest) else None
    measured = rule.auto.decide(longest, largest_radius(depths)) if rule.auto else None
    if measured is not None:
        return FillStrategy(measured.strategy == "whole", measured.max_hole_radius, depths)
    return FillStrategy(whole=False)
