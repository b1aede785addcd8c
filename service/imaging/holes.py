"""Finds the holes of a mask and groups them into few windows for the model. Pure.

A hole is a connected component of the mask; parts a few pixels apart count as one. Holes are grouped while they fit
one window. Thin holes longer than a window, such as wires and scratches, are cut into pieces, so that they need not be
scaled down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from service.core.pictures import Bool2D, Box, Size

Boxes = NDArray[np.intp]
"""N×4: top, left, bottom, right."""
Depths = NDArray[Any]
"""float32 H×W of the rectangle around all holes: each pixel's distance to the nearest pixel outside the mask."""
GAP = 6
"""Parts of the mask that are at most this many pixels apart belong to the same hole."""
THIN_RADIUS = 16.0
"""Holes up to this radius are thin: they are cut if they are longer than a window; a cut is at most twice this long."""

_SQUARE_IN_CIRCLE = 23
"""Side of a square whose corners are within `THIN_RADIUS` of its centre: 11 diagonal steps of 1.37 each, in OpenCV's
3×3 distance, which radii are measured in."""
_REACH = GAP // 2
_JOINS = np.ones((GAP + 1, GAP + 1), np.uint8)
_SQUARE = np.ones((_SQUARE_IN_CIRCLE, _SQUARE_IN_CIRCLE), np.uint8)


@dataclass(frozen=True, slots=True)
class Holes:
    """The holes of a mask; every masked pixel belongs to exactly one.

    boxes: N×4, the bounding boxes.
    radii: radius of the largest circle in each hole, in pixels; 0 where it is at most `THIN_RADIUS`.
    labels: H×W int32 of a rectangle around all holes, whose top left is `origin`; 0 = not masked, hole i has i + 1.
    """

    boxes: Boxes
    radii: NDArray[np.float32]
    labels: NDArray[np.int32]
    origin: tuple[int, int]


def find_holes(mask: Bool2D, window: int, depths: Depths | None = None) -> Holes:
    """Find the holes of a mask (at least one pixel); thin ones longer than `window` are cut into half windows.

    Args:
        mask: H×W, True = fill.
        window: side of a window in pixels.
        depths: result of `find_depths`, if it is known already.
    """
    inside, (top, left) = _bounding_part(mask)
    joined = cv2.dilate(inside.view(np.uint8), _JOINS)
    count, found = cv2.connectedComponents(joined, connectivity=8, ltype=cv2.CV_32S)
    labels: NDArray[np.int32] = np.asarray(found, np.int32)
    boxes = _hole_boxes(joined, labels, count - 1)
    labels *= inside
    radii = _radii_by_hole(_measure_depths(inside) if depths is None else depths, labels, len(boxes))
    pieces = [boxes]
    for hole in np.flatnonzero(((boxes[:, 2:] - boxes[:, :2]).max(axis=1) > window) & (radii == 0)):
        cut = _cut_into_pieces(labels, int(hole), boxes[hole], max(1, window // 2), sum(map(len, pieces)))
        boxes[hole] = cut[0]
        pieces.append(cut[1:])
    if len(pieces) > 1:
        boxes = np.concatenate(pieces)
        radii = np.pad(radii, (0, len(boxes) - len(radii)))
    boxes += (top, left) * 2
    return Holes(boxes, radii, labels, (top, left))


def find_depths(mask: Bool2D) -> Depths | None:
    """Each masked pixel's distance to the mask's edge; None if no circle larger than `THIN_RADIUS` fits the mask."""
    return _measure_depths(_bounding_part(mask)[0])


def largest_radius(depths: Depths | None) -> float:
    """The largest radius of any hole, as in `Holes.radii`."""
    radius = 0.0 if depths is None else float(depths.max())
    return radius if radius > THIN_RADIUS else 0.0


def bounding_box(mask: Bool2D) -> Box:
    """The box around all masked pixels."""
    left, top, width, height = cv2.boundingRect(mask.view(np.uint8))
    return Box(top, left, top + height, left + width)


def two_windows_cover(mask: Bool2D, bounds: Box, window: Size) -> bool:
    """Whether two windows can cover all masked pixels; takes a tenth of the time of `find_holes`.

    Two windows that cover all touch all four sides of the bounding box, so two in opposite corners cover all, too.
    """
    height, width = (min(have, side) for have, side in zip(bounds.size, window, strict=True))
    inside = mask[bounds.top : bounds.bottom, bounds.left : bounds.right].view(np.uint8)
    above, below = slice(0, height), slice(inside.shape[0] - height, None)
    to_left, to_right = slice(0, width), slice(inside.shape[1] - width, None)
    both = inside[below.start : height, to_right.start : width]  # empty if the windows do not meet
    least = cv2.countNonZero(inside) + (cv2.countNonZero(both) if both.size else 0)
    return any(
        cv2.countNonZero(inside[above, first]) + cv2.countNonZero(inside[below, second]) >= least
        for first, second in ((to_left, to_right), (to_right, to_left))
    )


def group_boxes(boxes: Boxes, height: int, width: int, alone: Bool2D) -> NDArray[np.intp]:
    """Group boxes so that each group fits a window of height × width; returns N group numbers, 0, 1, ….

    Larger boxes, and those marked in `alone` (N), get groups of their own. Greedy: bands from top to bottom, and in
    each band windows from left to right.
    """
    groups = np.full(len(boxes), -1, np.intp)
    sizes = boxes[:, 2:] - boxes[:, :2]
    large = (sizes[:, 0] > height) | (sizes[:, 1] > width) | alone
    groups[large] = np.arange(np.count_nonzero(large))
    number = int(np.count_nonzero(large))
    waiting = np.flatnonzero(~large)
    waiting = waiting[np.argsort(boxes[waiting, 0], kind="stable")]
    while waiting.size:
        in_band = boxes[waiting, 2] <= boxes[waiting[0], 0] + height
        band, waiting = waiting[in_band], waiting[~in_band]
        band = band[np.argsort(boxes[band, 1], kind="stable")]
        while band.size:
            in_window = boxes[band, 3] <= boxes[band[0], 1] + width
            groups[band[in_window]] = number
            band = band[~in_window]
            number += 1
    return groups


class HoleGroup(NamedTuple):
    """A group of boxes: their numbers, the box around them, and the largest height and width among them."""

    members: tuple[int, ...]
    bounds: Box
    extent: Size


def groups_of(boxes: Boxes, numbers: NDArray[np.intp]) -> list[HoleGroup]:
    """The groups of boxes. `numbers`: the group of each box, 0, 1, … without gaps."""
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers))
    starts, sorted_boxes = np.concatenate(((0,), ends[:-1])), boxes[order]
    low = np.minimum.reduceat(sorted_boxes[:, :2], starts).tolist()
    high = np.maximum.reduceat(sorted_boxes[:, 2:], starts).tolist()
    extents = np.maximum.reduceat(sorted_boxes[:, 2:] - sorted_boxes[:, :2], starts).tolist()
    members, spans = order.tolist(), zip(starts.tolist(), ends.tolist(), strict=True)
    return [
        HoleGroup(tuple(members[start:end]), Box(*first, *last), Size(*extent))
        for (start, end), first, last, extent in zip(spans, low, high, extents, strict=True)
    ]


def _bounding_part(mask: Bool2D) -> tuple[Bool2D, tuple[int, int]]:
    """The rectangle around all masked pixels, `_REACH` pixels wider on every side, and its top left in the mask.

    One more column on the right stays empty when holes are joined, so that no run continues in the next row.
    """
    left, top, width, height = cv2.boundingRect(mask.view(np.uint8))
    inside = np.zeros((height + 2 * _REACH, width + 2 * _REACH + 1), np.bool_)
    inside[_REACH : _REACH + height, _REACH : _REACH + width] = mask[top : top + height, left : left + width]
    return inside, (top - _REACH, left - _REACH)


def _hole_boxes(joined: Any, labels: NDArray[np.int32], count: int) -> Boxes:
    """The boxes of the joined holes, without the pixels that joining added.

    Computed from the runs of each row, because connectedComponentsWithStats takes eight times as long as
    connectedComponents.
    """
    flat = joined.reshape(-1)
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    if flat[0]:
        changes = np.concatenate(((0,), changes))
    starts, lengths = changes[::2], changes[1::2] - changes[::2]
    rows, lefts = np.divmod(starts, joined.shape[1])
    holes = labels.reshape(-1).take(starts) - 1
    boxes = np.empty((count, 4), np.intp)
    boxes[holes[::-1], 0] = rows[::-1]  # the last of equal indices counts: the first row of a hole
    boxes[holes, 2] = rows + 1
    boxes[:, 1], boxes[:, 3] = joined.shape[1], 0
    np.minimum.at(boxes[:, 1], holes, lefts)
    np.maximum.at(boxes[:, 3], holes, lefts + lengths)
    boxes += (_REACH, _REACH, -_REACH, -_REACH)
    return boxes


def _measure_depths(inside: Bool2D) -> Depths | None:
    return cv2.distanceTransform(inside.view(np.uint8), cv2.DIST_L2, 3) if _may_be_thick(inside) else None


def _radii_by_hole(depths: Depths | None, labels: NDArray[np.int32], count: int) -> NDArray[np.float32]:
    radii = np.zeros(count + 1, np.float32)
    if depths is not None:
        thick = np.flatnonzero(depths > THIN_RADIUS)
        np.maximum.at(radii, labels.take(thick), depths.take(thick))
    return radii[1:]


def _may_be_thick(inside: Bool2D) -> bool:
    """Whether a circle larger than `THIN_RADIUS` may fit; checking for its inner square takes a third of the time."""
    survivors = cv2.erode(inside.view(np.uint8), _SQUARE, borderType=cv2.BORDER_CONSTANT, borderValue=0)
    return cv2.countNonZero(survivors) > 0


def _cut_into_pieces(labels: NDArray[np.int32], hole: int, box: Any, side: int, count: int) -> Boxes:
    """Cut a hole into pieces and relabel them: the first keeps its label, the others follow the `count` in use."""
    top, left, bottom, right = map(int, box)
    own = labels[top:bottom, left:right] == hole + 1
    pieces: list[tuple[int, int, int, int]] = []
    for row in range(top, bottom, side):
        for column in range(left, right, side):
            cell = np.ascontiguousarray(own[row - top : row - top + side, column - left : column - left + side])
            x, y, width, height = cv2.boundingRect(cell.view(np.uint8))
            if width:
                label = count + len(pieces) if pieces else hole + 1
                labels[row : row + cell.shape[0], column : column + cell.shape[1]][cell] = label
                pieces.append((row + y, column + x, row + y + height, column + x + width))
    return np.array(pieces, np.intp)
