"""Whether a mask is filled from the whole picture or from crops: as asked, as measured for the model, or safely. Pure.

`auto` follows the measured rules of the manifest. Without them quality comes first: a picture that fits the largest
tile is seen whole, and in a larger one crops keep its resolution; nothing is scaled down that fits a tile.
"""

from __future__ import annotations

from typing import NamedTuple

from engines.manifest import FixedSize, SizeRule
from service.core.pictures import Bool2D
from service.core.samples import Strategy
from service.imaging.holes import Depths, find_depths, largest_radius


class Way(NamedTuple):
    """How a mask is filled.

    whole: always from the whole picture; otherwise from crops, for which `plan` may still take the whole.
    max_hole_radius: of crops, in tile pixels: holes that are thicker are scaled down to it; None for no limit.
    depths: the mask's, where they were measured for the choice.
    """

    whole: bool
    max_hole_radius: int | None = None
    depths: Depths | None = None


def choose_way(mask: Bool2D, rule: SizeRule, strategy: Strategy) -> Way:
    """The way for a mask.

    Args:
        mask: H×W of the picture, True = fill.
        rule: the model's.
        strategy: the request's.
    """
    if strategy != "auto":
        return Way(strategy == "whole", rule.max_hole_radius)
    if isinstance(rule, FixedSize) and rule.fit == "resize":
        return Way(whole=True)
    longest = max(mask.shape)
    depths = find_depths(mask) if rule.auto and rule.auto.asks_for_radius(longest) else None
    measured = rule.auto.decide(longest, largest_radius(depths)) if rule.auto else None
    if measured is not None:
        return Way(measured.strategy == "whole", measured.max_hole_radius, depths)
    return Way(whole=False)
