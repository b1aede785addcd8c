"""The plan of the crops that become tiles: the whole picture, or a crop around each group of holes. Pure.

Every masked pixel is filled by exactly one crop. Crops keep the picture's resolution where hole and context fit the
model's largest tile. They are scaled down where hole and context do not fit, or where a hole is thicker than the limit
of the chosen strategy (service/imaging/fill_strategy.py). docs/images.md shows the rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import NamedTuple

import numpy as np

from engines.manifest import FixedSize, SizeRule
from service.core.batch_rows import Crop, Strategy
from service.core.pictures import Bool2D, Box, Size
from service.imaging.fill_strategy import choose_fill_strategy
from service.imaging.fixed_hole import crop_onto_fixed_hole
from service.imaging.holes import (
    Holes,
    bounding_box,
    find_depths,
    find_holes,
    group_boxes,
    groups_of,
    largest_radius,
    two_windows_cover,
)

MIN_CONTEXT = 32
"""Required known pixels on every side of a hole; an eighth of the tile if that is less."""
MIN_CROP_SAVING = 2
"""A small picture is cropped only if crops have this many times fewer pixels, because a crop sees less context."""
MAX_CROPS = 128
MAX_TILES = 32
"""Limit of the crops' total area, in largest tiles, so that speckles all over a large picture stay affordable."""


class _TileSides(NamedTuple):
    """The tile sizes of a model: each of these heights with each of these widths, both ascending.

    largest: largest height and width. context: the least number of known pixels on every side of a hole.
    """

    heights: tuple[int, ...]
    widths: tuple[int, ...]
    largest: Size
    context: int

    def smallest_tile_for(self, size: Size) -> Size:
        """Return the smallest tile that holds the size; on an axis where none does, the largest."""
        return Size(
            _smallest_sufficient_side(self.heights, size.height), _smallest_sufficient_side(self.widths, size.width)
        )


@dataclass(frozen=True, slots=True)
class _GroupedHoles:
    """Holes that share a crop: their numbers, the box around them, and the required context around that box."""

    members: tuple[int, ...]
    hole: Box
    context: Size
    crop: Crop


def plan_crops(mask: Bool2D, rule: SizeRule, strategy: Strategy) -> list[Crop]:
    """Plan the crops that fill a mask, with the strategy that `choose_fill_strategy` returns.

    `auto` may use the whole picture even if that strategy is crops: if the largest tile holds it, no hole would be
    scaled down, and crops would not cost `MIN_CROP_SAVING` times less. A model with a fixed hole always gets crops,
    aligned to it.

    Args:
        mask: H×W of the picture, True = fill, at least one pixel.
        rule: the model's tile sizes and how pictures fit them.
        strategy: the request's option: auto, whole or crop.
    """
    picture, sides = Size(*mask.shape), _tile_sides(rule)
    target = Box(*rule.hole) if isinstance(rule, FixedSize) and rule.hole else None
    fits = target is None and _fits_largest_tile(picture, sides)
    chosen = choose_fill_strategy(mask, rule, "crop" if target else strategy)
    if chosen.whole:
        return [plan_whole(picture, rule)]
    whole = plan_whole(picture, rule) if fits and strategy == "auto" else None
    max_radius = chosen.max_hole_radius or math.inf
    if whole is not None and _crop_cost(whole) < MIN_CROP_SAVING * _smallest_crop_cost(sides):  # whatever the crops
        chosen = (
            chosen
            if chosen.depths is not None or chosen.max_hole_radius is None
            else chosen._replace(depths=find_depths(mask))
        )
        if chosen.max_hole_radius is None or largest_radius(chosen.depths) <= max_radius:
            return [whole]
    if whole is not None and chosen.max_hole_radius is None and not _may_be_worthwhile(mask, _crop_cost(whole), sides):
        return [whole]
    holes = find_holes(mask, max(1, min(sides.largest) - 2 * sides.context), chosen.depths)
    radii = holes.radii.tolist() if chosen.max_hole_radius else []

    def group_of(members: tuple[int, ...], hole: Box, context: Size) -> _GroupedHoles:
        if target is not None and isinstance(rule, FixedSize):
            return _GroupedHoles(members, hole, context, crop_onto_fixed_hole(hole, picture, rule, target))
        radius = max((radii[number] for number in members), default=0.0) if radii else 0.0
        crop = _crop_around(hole, context, picture, sides, max(1.0, radius / max_radius))
        return _GroupedHoles(members, hole, context, _stretched_to_tile(crop, rule))

    groups = _merge_overlapping(_group_holes_within_budget(holes, sides, max_radius, group_of), group_of)
    worthwhile = MIN_CROP_SAVING * sum(_crop_cost(group.crop) for group in groups)
    if whole is not None and float(holes.radii.max()) <= max_radius and _crop_cost(whole) < worthwhile:
        return [whole]
    return [replace(group.crop, hole=_mask_of_group(holes, group)) for group in groups]


def _may_be_worthwhile(mask: Bool2D, whole_cost: int, sides: _TileSides) -> bool:
    """Whether crops that are not scaled down may be `MIN_CROP_SAVING` times cheaper than the whole picture.

    Judged by the positions of the masked pixels: each crop holds the box of its holes and the context around it. If
    three crops, or one larger than the smallest tile and another, are not affordable, only one crop around all holes
    or two crops of the smallest tile are possible.
    """
    affordable, picture, bounds = whole_cost // MIN_CROP_SAVING, Size(*mask.shape), bounding_box(mask)
    around_all = sides.smallest_tile_for(_with_context(bounds, Size(sides.context, sides.context), picture))
    if around_all.height * around_all.width <= affordable:
        return True
    smallest, *larger = sorted({height * width for height in sides.heights for width in sides.widths})
    if 2 * smallest > affordable:
        return False
    if 3 * smallest <= affordable or any(smallest + larger_one <= affordable for larger_one in larger):
        return True
    spare = 2 * sides.context
    height, width = (
        have if have <= least else least - spare
        for have, least in zip(picture, (sides.heights[0], sides.widths[0]), strict=True)
    )
    return two_windows_cover(mask, bounds, Size(height, width))


def _fits_largest_tile(picture: Size, sides: _TileSides) -> bool:
    return picture.height <= sides.largest.height and picture.width <= sides.largest.width


def plan_whole(picture: Size, rule: SizeRule) -> Crop:
    """Return the whole picture as one crop: resized to the tile, or padded; scaled down if no tile holds it."""
    sides = _tile_sides(rule)
    scale = max(1.0, picture.height / sides.largest.height, picture.width / sides.largest.width)
    scaled = _scaled_down_size(picture, scale)
    box = Box(0, 0, picture.height, picture.width)
    tile = sides.smallest_tile_for(picture if rule.fit == "resize" else scaled)
    return _stretched_to_tile(Crop(box, scaled, tile), rule)


_GroupOf = Callable[[tuple[int, ...], Box, Size], _GroupedHoles]


def _group_holes_within_budget(
    holes: Holes, sides: _TileSides, max_radius: float, group_of: _GroupOf
) -> list[_GroupedHoles]:
    """Group holes into windows, enlarging the windows until the crops are few and small enough to afford.

    Windows start at the smallest tile, and beyond the largest tile they are scaled down. A hole that must be scaled
    down gets a group of its own, unless its window is scaled as much anyway.
    """
    budget = MAX_TILES * sides.largest.height * sides.largest.width
    for step in count():
        factor = 2.0 ** (step / 2)
        height, width = (int(least * factor) - 2 * sides.context for least in (sides.heights[0], sides.widths[0]))
        numbers = group_boxes(holes.boxes, max(1, height), max(1, width), holes.radii > max_radius * factor)
        if numbers.max() >= MAX_CROPS:
            continue
        groups = [
            group_of(own.members, own.bounds, _required_context(own.extent, sides))
            for own in groups_of(holes.boxes, numbers)
        ]
        if len(groups) == 1 or sum(_crop_cost(group.crop) for group in groups) <= budget:
            return groups
    raise AssertionError("unreachable: a window as large as the picture holds every hole")


def _merge_overlapping(groups: list[_GroupedHoles], group_of: _GroupOf) -> list[_GroupedHoles]:
    """Merge crops that overlap, if one tile costs no more than both and scales the holes down by at most 10 % more."""
    done: list[_GroupedHoles] = []
    waiting = list(groups)
    while waiting:
        group = waiting.pop()
        for other in done:
            if not group.crop.box.overlaps(other.crop.box):
                continue
            context = Size(*map(max, group.context, other.context))
            both = group_of(group.members + other.members, group.hole.joined(other.hole), context)
            cheaper = _crop_cost(both.crop) <= _crop_cost(group.crop) + _crop_cost(other.crop)
            if cheaper and _shrink_factor(both.crop) <= 1.1 * min(
                _shrink_factor(group.crop), _shrink_factor(other.crop)
            ):
                done.remove(other)
                waiting.append(both)
                break
        else:
            done.append(group)
    return sorted(done, key=lambda group: group.crop.box)


def _required_context(extent: Size, sides: _TileSides) -> Size:
    """Return the required context on every side: half the extent of the largest hole, or the minimum."""
    return Size(max(sides.context, extent.height // 2), max(sides.context, extent.width // 2))


def _crop_around(hole: Box, context: Size, picture: Size, sides: _TileSides, scale: float) -> Crop:
    """Return the crop around a hole: with less context if it then fits a tile, with more if the tile has room.

    scale: least factor to scale down by; it grows if the hole with least context does not fit the largest tile.
    """
    least = _scaled_down_size(_with_context(hole, Size(sides.context, sides.context), picture), scale)
    wanted = _with_context(hole, context, picture)
    if least.height > sides.largest.height or least.width > sides.largest.width:
        scale = max(wanted.height / sides.largest.height, wanted.width / sides.largest.width)
    tile = sides.smallest_tile_for(_scaled_down_size(wanted, scale))
    top, bottom = _centred_interval(hole.top, hole.bottom, int(tile.height * scale), picture.height)
    left, right = _centred_interval(hole.left, hole.right, int(tile.width * scale), picture.width)
    box = Box(top, left, bottom, right)
    return Crop(box, _scaled_down_size(box.size, scale), tile)


def _with_context(hole: Box, context: Size, picture: Size) -> Size:
    height, width = hole.size
    return Size(min(picture.height, height + 2 * context.height), min(picture.width, width + 2 * context.width))


def _centred_interval(first: int, last: int, length: int, limit: int) -> tuple[int, int]:
    """Centre an interval of `length` on first..last, then move and cut it to lie in 0..limit; it holds first..last."""
    length = min(max(length, last - first), limit)
    start = min(max(0, (first + last - length) // 2), limit - length)
    return start, start + length


def _stretched_to_tile(crop: Crop, rule: SizeRule) -> Crop:
    if rule.fit != "resize":
        return crop
    return Crop(crop.box, crop.tile, crop.tile, crop.hole, crop.below, crop.right_of)


def _mask_of_group(holes: Holes, group: _GroupedHoles) -> Bool2D:
    """Return the masked pixels of the crop's box that belong to the group's holes."""
    chosen = np.zeros(len(holes.boxes) + 1, np.bool_)
    chosen[np.array(group.members) + 1] = True
    box, hole, (top, left) = group.crop.box, group.hole, holes.origin
    owned: Bool2D = np.zeros(box.size, np.bool_)
    labels = holes.labels[hole.top - top : hole.bottom - top, hole.left - left : hole.right - left]
    owned[hole.top - box.top : hole.bottom - box.top, hole.left - box.left : hole.right - box.left] = chosen[labels]
    return owned


@lru_cache(maxsize=64)
def _tile_sides(rule: SizeRule) -> _TileSides:
    heights, widths = (tuple(sorted(set(sides))) for sides in zip(*rule.tile_sizes(), strict=True))
    context = max(1, min(MIN_CONTEXT, heights[0] // 8, widths[0] // 8))
    return _TileSides(heights, widths, Size(heights[-1], widths[-1]), context)


def _smallest_sufficient_side(ascending: tuple[int, ...], least: int) -> int:
    return next((side for side in ascending if side >= least), ascending[-1])


def _scaled_down_size(size: Size, scale: float) -> Size:
    return Size(max(1, round(size.height / scale)), max(1, round(size.width / scale)))


def _shrink_factor(crop: Crop) -> float:
    return max(crop.box.size.height / crop.scaled.height, crop.box.size.width / crop.scaled.width)


def _crop_cost(crop: Crop) -> int:
    return crop.tile.height * crop.tile.width


def _smallest_crop_cost(sides: _TileSides) -> int:
    """Return the cost of the smallest possible crop."""
    return sides.heights[0] * sides.widths[0]
