"""Large holes for training: strokes, boxes, organic blobs, mixtures and thick boxes, drawn on the device.

As in hole_masks.py, a hole is the set of pixels whose distance is below the level that gives the wanted coverage.
Random numbers are drawn first; a pure function, which can be compiled, makes holes from them.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

from training.data.hole_masks import to_boxes, to_segments

_STROKES, _JOINTS, _BOXES = 5, 7, 3
_COARSE, _FINE = 5, 12
"""Cells per side of the coarse and the fine noise that blobs are made from."""
_FAR = 9.0
_KINDS = (0.45, 0.62, 0.80)
"""Thresholds of a uniform number, for strokes, boxes and blobs in this order; above the last, strokes with boxes."""
_SAMPLED = 7
"""Stride of the pixels that determine the level."""
_THICK = (0.4, 0.8)
"""Smallest and largest part of the picture in a thick box."""
_UNIFORM = _STROKES * (2 + 1 + 1 + 1 + 2 * _JOINTS) + 1 + _BOXES * 4 + 1 + 2 + 2
_NORMAL = _COARSE**2 + _FINE**2


class _RandomColumns:
    """Hands out columns of random numbers."""

    def __init__(self, values: Tensor) -> None:
        self._values, self._taken = values, 0

    def take(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        count = math.prod(shape)
        part = self._values[:, self._taken : self._taken + count].reshape(-1, *shape)
        self._taken += count
        return low + (high - low) * part


def draw_numbers(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw uniform and normal numbers for `count` holes, on the generator's device."""
    device = generator.device
    uniform = torch.rand(count, _UNIFORM, generator=generator, device=device)
    return uniform, torch.randn(count, _NORMAL, generator=generator, device=device)


def make_holes(uniform: Tensor, normal: Tensor, side: int, coverage: tuple[float, float]) -> Tensor:
    """Make N holes from their numbers: N×1×side×side FP32, 1 = hole; `side` must be even."""
    numbers, half = _RandomColumns(uniform), side // 2  # half the resolution is enough for a distance field
    axis = (torch.arange(half, device=uniform.device) + 0.5) / half
    y, x = axis[:, None], axis[None, :]
    strokes, boxes, blobs = (
        _stroke_distances(numbers, y, x),
        _box_distances(numbers, y, x),
        _blob_distances(numbers, normal, y, x),
    )
    kind = numbers.take(1, 1)
    field = torch.where(kind < _KINDS[2], blobs, strokes.minimum(boxes))
    field = torch.where(kind < _KINDS[1], boxes, field)
    field = torch.where(kind < _KINDS[0], strokes, field)
    ranked = field.flatten(1)[:, ::_SAMPLED].sort(1).values
    cover = numbers.take(1, low=coverage[0], high=coverage[1])
    rank = (cover * ranked.shape[1]).long().clamp(0, ranked.shape[1] - 1)
    field = (field - ranked.gather(1, rank)[:, :, None])[:, None]
    return (F.interpolate(field, scale_factor=2.0, mode="bilinear", align_corners=False) < 0).float()


def _stroke_distances(numbers: _RandomColumns, y: Tensor, x: Tensor) -> Tensor:
    """Return the distances to 1 to 5 polylines of different thickness."""
    start = numbers.take(_STROKES, 1, 2)
    turns = numbers.take(_STROKES, _JOINTS, low=-1.3, high=1.3).cumsum(2)
    heading = numbers.take(_STROKES, 1, high=2 * math.pi) + turns
    pace = numbers.take(_STROKES, _JOINTS, low=0.04, high=0.26) * numbers.take(_STROKES, 1, low=0.4, high=1.3)
    steps = torch.stack([heading.sin(), heading.cos()], 3) * pace[..., None]
    joints = torch.cat([start, start + steps.cumsum(2)], 2)
    thickness = 0.01 + 0.09 * numbers.take(_STROKES).square()
    wanted = 1 + (numbers.take(1) * _STROKES).floor().clamp(max=_STROKES - 1)
    absent = torch.arange(_STROKES, device=y.device) >= wanted
    size = torch.where(absent, -_FAR, thickness).repeat_interleave(_JOINTS, 1)
    distances = to_segments(y, x, joints[:, :, :-1].flatten(1, 2), joints[:, :, 1:].flatten(1, 2))
    return (distances - size[:, :, None, None]).amin(1)


def _box_distances(numbers: _RandomColumns, y: Tensor, x: Tensor) -> Tensor:
    """Return the Chebyshev distances to 1 to 3 boxes."""
    boxes = torch.cat([numbers.take(_BOXES, 2), numbers.take(_BOXES, 2, low=0.06, high=0.31)], 2)
    wanted = 1 + (numbers.take(1) * _BOXES).floor().clamp(max=_BOXES - 1)
    absent = torch.arange(_BOXES, device=y.device) >= wanted
    return (to_boxes(y, x, boxes) + torch.where(absent, _FAR, 0.0)[:, :, None, None]).amin(1)


def _blob_distances(numbers: _RandomColumns, normal: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Return smooth noise that rises with the distance from a point, for blobs with ragged outlines."""
    size = (y.shape[0], x.shape[1])
    coarse, fine = normal[:, : _COARSE**2], normal[:, _COARSE**2 :]
    noise = sum(
        weight * F.interpolate(cells.view(-1, 1, side, side), size=size, mode="bicubic", align_corners=False)[:, 0]
        for cells, side, weight in ((coarse, _COARSE, 0.1), (fine, _FINE, 0.035))
    )
    centre = numbers.take(2, low=0.2, high=0.8)[..., None, None]
    return noise + 0.5 * ((y - centre[:, 0]).square() + (x - centre[:, 1]).square()).sqrt()


def draw_box_numbers(count: int, generator: torch.Generator) -> Tensor:
    """Draw uniform numbers for `count` thick boxes, 6×N, on the generator's device."""
    return torch.rand(6, count, generator=generator, device=generator.device)


def make_thick_boxes(numbers: Tensor, side: int) -> Tensor:
    """Make a box of 40 to 80 % of the picture for each sample: N×1×side×side FP32, 1 = hole.

    Eight of nine boxes touch a border of the picture.
    """
    cover, shape, *place = numbers
    cover = _THICK[0] + (_THICK[1] - _THICK[0]) * cover
    height = cover.pow(shape)
    axis = (torch.arange(side, device=numbers.device) + 0.5) / side
    inside: list[Tensor] = []
    for length, where, free in zip((height, cover / height), place[:2], place[2:], strict=True):
        share = torch.where(where < 1 / 3, 0.0, torch.where(where < 2 / 3, 1.0, free))
        begin = (share * (1 - length))[:, None]
        inside.append((axis > begin) & (axis < begin + length[:, None]))
    rows, columns = inside
    return (rows[:, None, :, None] & columns[:, None, None, :]).float()
