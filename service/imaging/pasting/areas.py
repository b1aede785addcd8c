"""Finds the areas where fills are pasted and blended, from the mask alone. Pure. Rules: docs/adr/0002-seam.md.

OpenCV's time grows with the box that it searches for the seam, so holes that are far apart get a box each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np

from service.core.batch_rows import Crop
from service.core.pictures import Bool2D, Box
from service.imaging.pasting.kernel import PastingKernel, installed_kernel
from service.imaging.pasting.seam import Seam, find_seam

FEATHER = 4
"""Width of the seam in pixels of the tile, inside the mask."""
MAX_FEATHER = 16
"""Largest width of the seam in pixels of the picture, where a tile is scaled up."""
_BLOCK = 8
"""Side in pixels of the blocks; holes whose blocks do not touch are far apart."""
_ONES = np.ones((_BLOCK, _BLOCK), np.uint8)
_BOX_COST_PIXELS = 128 * 128
"""Pixels that another box must save: searching them takes as long as the calls of numpy and OpenCV for a box."""
_MIN_BOXES_KERNEL_PIXELS = 2048 * 2048
"""Least pixels at which compiled code is faster with several boxes: in one its distances would not fit the caches."""
_MAX_BOXES = 16
"""Most holes that get boxes of their own; more are searched together, as comparing boxes takes longer than it saves."""


@dataclass(frozen=True, slots=True)
class PastePart:
    """The part of a picture that a crop's fill is pasted into.

    part: box in the picture around the crop's part of the mask.
    hole: mask of `part`, True where pixels are replaced.
    seam: width of the seam in pixels.
    """

    part: Box
    hole: Bool2D
    seam: int


@dataclass(frozen=True, slots=True)
class PasteArea:
    """A part of the picture where a crop's fill is pasted.

    part: box in the picture around some of the crop's holes; the parts of a crop do not overlap.
    hole: mask of `part`, True where pixels are replaced.
    seam: the seam of the mask in `part`.
    """

    part: Box
    hole: Bool2D
    seam: Seam


def paste_areas(mask: Bool2D, crop: Crop) -> list[PasteArea]:
    """Find the areas where a crop's fill is pasted; none if the crop fills nothing.

    Args:
        mask: H×W of the picture, True = fill.
        crop: planned by crops.py.
    """
    found = paste_part(mask, crop)
    return [] if found is None else areas_of_part(mask, found, installed_kernel())


def areas_of_part(mask: Bool2D, found: PastePart, kernel: PastingKernel | None) -> list[PasteArea]:
    """Divide a part into areas, so that holes far apart have their own if that saves time; find the seam of each."""
    whole = Box(0, 0, *found.hole.shape)
    single = kernel is not None and whole.area < _MIN_BOXES_KERNEL_PIXELS
    areas = []
    for box in [whole] if single else boxes_of_holes(found.hole, found.seam + 1):
        part = box.moved(found.part.top, found.part.left)
        hole = found.hole[box.top : box.bottom, box.left : box.right]
        part_mask = mask[part.top : part.bottom, part.left : part.right]
        seam = kernel.find_seam(part_mask, found.seam) if kernel else find_seam(part_mask, found.seam)
        areas.append(PasteArea(part, hole, seam))
    return areas


def paste_part(mask: Bool2D, crop: Crop) -> PastePart | None:
    """Find the part of the picture that a crop's fill is pasted into, without its seam; None if it fills nothing."""
    box = crop.box
    hole = mask[box.top : box.bottom, box.left : box.right] if crop.hole is None else crop.hole
    x, y, width, height = cv2.boundingRect(np.ascontiguousarray(hole).view(np.uint8))
    if not width:
        return None
    seam = min(MAX_FEATHER, round(FEATHER * max(1.0, box.size.width / crop.scaled.width)))
    within = Box(y, x, y + height, x + width).grown(seam + 1, box.size)
    return PastePart(
        within.moved(box.top, box.left), hole[within.top : within.bottom, within.left : within.right], seam
    )


def boxes_of_holes(hole: Bool2D, margin: int) -> list[Box]:
    """Boxes that hold all masked pixels and `margin` pixels around them, and do not overlap.

    There is one box if several would not save time.
    """
    size = Box(0, 0, *hole.shape).size
    whole = Box(0, 0, *size)
    if whole.area <= 2 * _BOX_COST_PIXELS:
        return [whole]
    blocks = cv2.dilate(hole.view(np.uint8), _ONES, anchor=(0, 0))[::_BLOCK, ::_BLOCK]
    count, _, found, _ = cv2.connectedComponentsWithStats(blocks)
    if count - 1 not in range(2, _MAX_BOXES + 1):
        return [whole]
    boxes = [
        Box(y * _BLOCK, x * _BLOCK, (y + height) * _BLOCK, (x + width) * _BLOCK).grown(margin, size)
        for x, y, width, height, _ in found[1:].tolist()
    ]
    return _joined_boxes(boxes)


def _joined_boxes(boxes: Iterable[Box]) -> list[Box]:
    """Join boxes that overlap, and boxes that cost no more when joined."""
    done: list[Box] = []
    waiting = list(boxes)
    while waiting:
        box = waiting.pop()
        for other in done:
            both = box.joined(other)
            if box.overlaps(other) or both.area <= box.area + other.area + _BOX_COST_PIXELS:
                done.remove(other)
                waiting.append(both)
                break
        else:
            done.append(box)
    return done
