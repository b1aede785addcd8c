"""Plans the windows around the holes in which the texture stage works, and bounds their cost. Pure.

A window has the holes and the known pixels up to `MARGIN` around them. Large windows are cut into cells where the holes
are thin, and scaled down where they are thick, as a cell in the middle of a thick hole would have nothing to copy. If
all windows together are too much work, all are scaled down. The change that texture makes at a smaller size is scaled
up and added to the fill, which keeps its own details.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import cv2
import numpy as np

from service.core.pictures import Bool2D, Box, Picture, Size
from service.imaging.files.pixels import to_8_bits, to_channels
from service.imaging.holes import bounding_box
from service.imaging.pasting.areas import boxes_of_holes
from service.imaging.pool.parallel_steps import StepRunner, run_sequentially
from service.imaging.texture.level import touched
from service.imaging.texture.parameters import Parameters
from service.imaging.texture.patch_match import Kernel
from service.imaging.texture.stage import DEFAULT_PARAMETERS, Rgb, add_texture

MARGIN = 64
"""Known pixels around a hole that texture is copied from, on each side."""
MAX_WORK = 600_000
"""Most work at full size, as pixels near holes plus an eighth of the windows' pixels. A core takes 2 to 3 s."""
_WINDOW_PIXELS_PER_NEAR_PIXEL = 8
"""Pixels of a window that take as long as one pixel near a hole; only pixels near holes are matched with patches."""
MAX_WINDOW_PIXELS = 1024 * 1024
"""Most pixels of a window that is neither cut nor scaled down."""
BYTES_PER_PIXEL = 310
"""Memory that a window takes while it is computed, for each of its pixels (docs/adr/0058-copied-texture.md)."""
CELL = 512
"""Side of the cells that windows with thin holes are cut into, without their margins."""
THIN = 64
"""Radius up to which holes are thin: in the middle of a cell with its margin, something is known."""


Draw = Callable[..., Rgb | None]
"""`add_texture` with all arguments but `fill`, `hole` and `redrawn`."""


class Window(NamedTuple):
    """A part of the picture, in its coordinates: `core` is redrawn, from `seen`, which includes it."""

    core: Box
    seen: Box
    scale: float
    """Factor on each side at which the window is computed; at most 1."""


class TexturePlan(NamedTuple):
    """The windows of a mask (`hole`: H×W, True = fill), and how much work they are."""

    hole: Bool2D
    windows: list[Window]
    work: int
    """The work as `MAX_WORK` counts it; the time is proportional to it."""


def plan_texture(hole: Bool2D) -> TexturePlan:
    """Plan the windows of a mask; each masked pixel is in exactly one core."""
    if not hole.any():
        return TexturePlan(hole, [], 0)
    planned = list(_plan_at(hole, 1))
    work = _work(hole, planned)
    if work <= MAX_WORK:
        return TexturePlan(hole, planned, math.ceil(work))
    return TexturePlan(hole, list(_plan_at(hole, math.sqrt(MAX_WORK / work))), MAX_WORK)


def working_bytes(pixels: int) -> int:
    """Return the most memory that texture takes in a picture of that size, in bytes."""
    return min(pixels, MAX_WINDOW_PIXELS) * BYTES_PER_PIXEL


def copy_texture(
    picture: Picture,
    plan: TexturePlan,
    kernel: Kernel,
    parameters: Parameters = DEFAULT_PARAMETERS,
    run_steps: StepRunner = run_sequentially,
) -> bool:
    """Copy texture into the filled holes of a picture, in place. Other pixels, alpha and profile are not touched.

    Returns:
        Whether any window had enough known patches to copy.
    """
    draw = partial(add_texture, kernel=kernel, parameters=parameters, run_steps=run_steps)
    copied = [_redraw(picture.pixels, plan.hole, window, draw) for window in plan.windows]
    return any(copied)


def _plan_at(hole: Bool2D, scale: float) -> Iterator[Window]:
    """Plan the windows of a mask, all scaled by at most `scale`."""
    margin = round(MARGIN / scale)
    around = bounding_box(hole).grown(margin, Size(*hole.shape))
    for box in boxes_of_holes(hole[around.top : around.bottom, around.left : around.right], margin):
        yield from _windows_of(hole, box.moved(around.top, around.left), scale)


def _work(hole: Bool2D, windows: list[Window]) -> float:
    near = int(np.count_nonzero(touched(hole)))
    return near + sum(window.seen.area * window.scale**2 for window in windows) / _WINDOW_PIXELS_PER_NEAR_PIXEL


def _windows_of(hole: Bool2D, box: Box, scale: float) -> Iterator[Window]:
    """Plan one box around holes: as a whole, in cells if its holes are thin, or scaled down."""
    area = box.area * scale**2
    if area <= MAX_WINDOW_PIXELS:
        yield Window(box, box, scale)
    elif _radius(hole, box) * scale <= THIN:
        yield from _cells(hole, box, scale)
    else:
        yield Window(box, box, scale * math.sqrt(MAX_WINDOW_PIXELS / area))


def _radius(hole: Bool2D, box: Box) -> float:
    """Return the radius of the largest circle that fits in a hole of the box, in pixels of the picture."""
    inside = np.ascontiguousarray(hole[box.top : box.bottom, box.left : box.right]).view(np.uint8)
    return float(cv2.distanceTransform(inside, cv2.DIST_L2, 3).max())


def _cells(hole: Bool2D, box: Box, scale: float) -> Iterator[Window]:
    """Cut a box into cells; the core of a cell is the box around its masked pixels; cells without any are left out."""
    side, limit = round(CELL / scale), Size(*hole.shape)
    for top in range(box.top, box.bottom, side):
        for left in range(box.left, box.right, side):
            cell = Box(top, left, min(top + side, box.bottom), min(left + side, box.right))
            x, y, width, height = cv2.boundingRect(
                np.ascontiguousarray(hole[cell.top : cell.bottom, cell.left : cell.right]).view(np.uint8)
            )
            if width:
                core = Box(y, x, y + height, x + width).moved(top, left)
                yield Window(core, core.grown(round(MARGIN / scale), limit), scale)


def _redraw(pixels: Any, hole: Bool2D, window: Window, draw: Draw) -> bool:
    """Redraw the holes in one window's core, in `pixels` H×W×C (uint8 or uint16); False if nothing could be copied."""
    core, seen = window.core, window.seen
    part = pixels[seen.top : seen.bottom, seen.left : seen.right]
    unknown = hole[seen.top : seen.bottom, seen.left : seen.right]
    redrawn = np.zeros_like(unknown)
    inner = slice(core.top - seen.top, core.bottom - seen.top), slice(core.left - seen.left, core.right - seen.left)
    redrawn[inner] = unknown[inner]
    rgb = to_channels(np.ascontiguousarray(to_8_bits(part)), 3)
    drawn = _at_scale(rgb, unknown, redrawn, window.scale, draw)
    if drawn is None:
        return False
    own = to_channels(drawn, part.shape[2])
    found = own if part.dtype == np.uint8 else own.astype(np.uint16) * np.uint16(257)
    part[redrawn] = found[redrawn]
    return True


def _at_scale(rgb: Rgb, unknown: Bool2D, redrawn: Bool2D, scale: float, draw: Draw) -> Rgb | None:
    """Draw at a smaller size and add the change, scaled up; None if nothing could be copied."""
    height, width = unknown.shape
    if scale == 1:
        return draw(rgb, unknown, redrawn=redrawn)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), np.uint8)
    marked = [_shrunk(mask, size) for mask in (unknown, redrawn)]
    drawn = draw(small, marked[0], redrawn=marked[1])
    if drawn is None:
        return None
    change = drawn - small.astype(np.float32)
    added: Any = rgb + cv2.resize(change, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.asarray(np.rint(added.clip(0, 255)), np.uint8)


def _shrunk(mask: Bool2D, size: tuple[int, int]) -> Bool2D:
    """Scale a mask down; a pixel is marked if any part of it is."""
    small: Any = cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA)
    return np.asarray(small > 0)
