"""Draws irregular holes in batches on the device: strokes, blobs and boxes that cover a given part of the picture.

Every shape is a distance to its edge. The minimum over a sample's shapes is a distance field, and the hole is where the
field is below the level that gives the wanted coverage: all shapes grow or shrink together. Strokes follow Yu et al.,
"Free-Form Image Inpainting with Gated Convolution", ICCV 2019 (algorithm 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Uniform = Callable[..., Tensor]
STROKES, JOINTS, BLOBS, BOXES = 5, 6, 5, 4
_FAR = 1e3
_GRID = 4
"""Stride of the pixels from which the level is found: a sort of 1/16 of them gives the coverage within one percent."""


@dataclass(frozen=True)
class HoleShapes:
    """The shapes of N samples in units of the picture's side; a `size` far below 0 means that the shape is absent."""

    joints: Tensor
    """N×STROKES×(JOINTS+1)×2: the corners of strokes."""
    stroke_size: Tensor
    """N×STROKES: half their thickness."""
    blobs: Tensor
    """N×BLOBS×5: centre, half axes, angle."""
    blob_size: Tensor
    """N×BLOBS: 0 or absent."""
    boxes: Tensor
    """N×BOXES×4: centre, half sides."""
    box_size: Tensor
    """N×BOXES: 0 or absent."""
    coverage: Tensor
    """N: the fraction of the picture to cover."""

    def samples_between(self, first: int, last: int) -> HoleShapes:
        """Return samples first … last - 1, one process's part of the batch."""
        return HoleShapes(*(tensor[first:last] for tensor in vars(self).values()))


def draw_shapes(count: int, coverage: tuple[float, float], generator: torch.Generator) -> HoleShapes:
    """Draw random shapes for `count` samples on the generator's device.

    Half of the samples have strokes alone, 30 % strokes with blobs, boxes or both, 10 % boxes alone, 10 % blobs alone.

    Args:
        count: number of samples.
        coverage: smallest and largest fraction of the picture to cover.
        generator: draws the shapes.
    """

    def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        drawn = torch.rand(count, *shape, generator=generator, device=generator.device)
        return low + (high - low) * drawn

    kind = uniform()
    strokes_wanted = uniform(high=STROKES) * (kind < 0.8) + 1.0 * (kind < 0.8)
    blobs_wanted = uniform(high=BLOBS) * ((kind > 0.5) & (kind < 0.7)) + (BLOBS - 1) * (kind > 0.9)
    boxes_wanted = uniform(high=BOXES) * ((kind > 0.65) & (kind < 0.9)) + 1.0 * ((kind > 0.8) & (kind < 0.9))
    return HoleShapes(
        joints=_stroke_corners(uniform),
        stroke_size=_hide_absent(strokes_wanted, STROKES, uniform(STROKES, low=0.01, high=0.06)),
        blobs=torch.cat(
            [uniform(BLOBS, 2), uniform(BLOBS, 2, low=0.04, high=0.25), uniform(BLOBS, 1, high=math.pi)], 2
        ),
        blob_size=_hide_absent(blobs_wanted, BLOBS, torch.zeros_like(uniform(BLOBS))),
        boxes=torch.cat([uniform(BOXES, 2), uniform(BOXES, 2, low=0.04, high=0.3)], 2),
        box_size=_hide_absent(boxes_wanted, BOXES, torch.zeros_like(uniform(BOXES))),
        coverage=uniform(low=coverage[0], high=coverage[1]),
    )


def _hide_absent(wanted: Tensor, most: int, size: Tensor) -> Tensor:
    index = torch.arange(most, device=size.device)
    return torch.where(index < wanted[:, None], size, -_FAR)


def _stroke_corners(uniform: Uniform) -> Tensor:
    """Draw the corners of strokes: a random start, then steps that turn by up to 70° either way."""
    heading = uniform(STROKES, 1, high=2 * math.pi) + uniform(STROKES, JOINTS, low=-1.2, high=1.2).cumsum(2)
    length = uniform(STROKES, JOINTS, low=0.05, high=0.25)
    steps = torch.stack([heading.sin(), heading.cos()], 3) * length[..., None]
    start = uniform(STROKES, 1, 2)
    return torch.cat([start, start + steps.cumsum(2)], 2)


def fill_shapes(shapes: HoleShapes, side: int) -> Tensor:
    """Rasterise the shapes at their coverage to N×1×side×side FP32, 1 = hole."""
    axis = (torch.arange(side, device=shapes.coverage.device) + 0.5) / side
    y, x = axis[:, None], axis[None, :]
    starts, ends = shapes.joints[:, :, :-1].flatten(1, 2), shapes.joints[:, :, 1:].flatten(1, 2)
    sizes = shapes.stroke_size.repeat_interleave(JOINTS, 1)
    field = _nearest_edge_distance(to_segments(y, x, starts, ends), sizes)
    field = field.minimum(_nearest_edge_distance(_to_ellipses(y, x, shapes.blobs), shapes.blob_size))
    field = field.minimum(_nearest_edge_distance(to_boxes(y, x, shapes.boxes), shapes.box_size))
    grid = field[:, _GRID // 2 :: _GRID, _GRID // 2 :: _GRID].flatten(1).sort(1).values
    rank = (shapes.coverage * grid.shape[1]).long().clamp(0, grid.shape[1] - 1)
    return (field < grid.gather(1, rank[:, None])[:, :, None]).float().unsqueeze(1)


def _nearest_edge_distance(distances: Tensor, sizes: Tensor) -> Tensor:
    """Reduce N×S×H×W distances and N×S sizes to the distance from the nearest edge, N×H×W."""
    return (distances - sizes[:, :, None, None]).amin(1)


def to_segments(y: Tensor, x: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """Compute distances to the segments between two points, N×S×2 each."""
    along = ends - starts
    dy, dx = y - starts[..., 0, None, None], x - starts[..., 1, None, None]
    ay, ax = along[..., 0, None, None], along[..., 1, None, None]
    t = ((dy * ay + dx * ax) / (ay * ay + ax * ax).clamp(min=1e-8)).clamp(0, 1)
    return ((dy - t * ay).square() + (dx - t * ax).square()).sqrt()


def _to_ellipses(y: Tensor, x: Tensor, ellipses: Tensor) -> Tensor:
    """Approximate distances to the edges of ellipses (N×S×5), negative inside; exact for circles."""
    cy, cx, a, b, angle = (value[..., None, None] for value in ellipses.unbind(2))
    dy, dx = y - cy, x - cx
    u, v = (dx * angle.cos() + dy * angle.sin()) / a, (dy * angle.cos() - dx * angle.sin()) / b
    return ((u.square() + v.square()).sqrt() - 1) * torch.minimum(a, b)


def to_boxes(y: Tensor, x: Tensor, boxes: Tensor) -> Tensor:
    """Compute chessboard distances to the edges of boxes (N×S×4), negative inside."""
    cy, cx, h, w = (value[..., None, None] for value in boxes.unbind(2))
    return torch.maximum((y - cy).abs() - h, (x - cx).abs() - w)
