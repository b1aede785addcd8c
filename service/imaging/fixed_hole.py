"""Crops for models that fill one fixed part of their tile: any hole is moved and scaled onto that part. Pure.

The hole's bounding box is centred in that part, as large as its aspect ratio allows, so that little of the
model's output is wasted. Where the tile reaches beyond the picture, the picture is reflected.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from engines.manifest import FixedSize
from service.core.batch_rows import Crop
from service.core.pictures import Box, Size

_ROUNDING = 1e-6


class _AxisPlacement(NamedTuple):
    """An interval start..stop of the picture on one axis, placed at `offset` in the tile with the length `scaled`."""

    start: int
    stop: int
    offset: int
    scaled: int

    def tile_position(self, position: int) -> float:
        return self.offset + (position - self.start) * self.scaled / (self.stop - self.start)


def crop_onto_fixed_hole(hole: Box, picture: Size, rule: FixedSize, target: Box) -> Crop:
    """The crop that puts a hole of the picture onto `target`, a part of the rule's tile."""
    least = min(target.size)
    slack = 0
    while True:  # rounding to whole pixels may push the hole over the edge; it is then scaled a little smaller
        scale = max(
            hole.size.height / max(1, target.size.height - slack), hole.size.width / max(1, target.size.width - slack)
        )
        rows = _place_on_axis(hole.top, hole.bottom, picture.height, (target.top, target.bottom, rule.height), scale)
        columns = _place_on_axis(hole.left, hole.right, picture.width, (target.left, target.right, rule.width), scale)
        fits = (
            rows.tile_position(hole.top) >= target.top - _ROUNDING
            and rows.tile_position(hole.bottom) <= target.bottom + _ROUNDING
            and columns.tile_position(hole.left) >= target.left - _ROUNDING
            and columns.tile_position(hole.right) <= target.right + _ROUNDING
        )
        if fits or slack >= least - 1:
            box = Box(rows.start, columns.start, rows.stop, columns.stop)
            tile = Size(rule.height, rule.width)
            scaled = Size(rows.scaled, columns.scaled)
            return Crop(box, scaled, tile, below=rows.offset, right_of=columns.offset)
        slack += 1


def _place_on_axis(first: int, last: int, limit: int, target: tuple[int, int, int], scale: float) -> _AxisPlacement:
    """Place first..last of an axis of `limit` pixels onto the middle of low..high of a tile.

    target: low, high, and the tile's length. scale: pixels of the picture for each pixel of the tile.
    """
    low, high, tile = target
    origin = (first + last - (low + high) * scale) / 2
    start = max(0, min(first, math.ceil(origin - _ROUNDING)))
    stop = min(limit, max(last, math.floor(origin + tile * scale + _ROUNDING)))
    offset = max(0, min(tile - 1, round((start - origin) / scale)))
    return _AxisPlacement(start, stop, offset, max(1, min(tile - offset, round((stop - start) / scale))))
