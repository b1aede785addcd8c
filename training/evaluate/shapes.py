"""Holes of three kinds that cover an exact part of a picture: strokes, boxes, and blobs shaped like objects. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from training.evaluate.holes import Band, Mask, draw_hole, nearest_pixels

Kind = Literal["strokes", "boxes", "blobs"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_WAVES = (1, 2, 3, 5)
"""Frequencies of a blob's outline, in waves per revolution: uneven, but smooth."""


def draw(kind: Kind, height: int, width: int, band: Band, random: Random) -> Mask:
    """Draw a hole of a kind, H×W; its coverage is uniformly distributed in the band."""
    if kind == "strokes":
        return draw_hole(height, width, band, random)
    distance = _box if kind == "boxes" else _blob
    return _draw_shapes(distance, height, width, random, random.uniform(*band))


Grid = NDArray[np.float64]


def _draw_shapes(
    distance: Callable[[Grid, Grid, tuple[int, int], Random], Grid],
    height: int,
    width: int,
    random: Random,
    part: float,
) -> Mask:
    """Return a mask of one to three shapes that grow together until they cover `part` of the picture, from 0 to 1."""
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float64)
    field = np.full((height, width), np.inf)
    for _ in range(random.choice((1, 1, 2, 3))):
        y, x = random.uniform(0.2, 0.8) * height, random.uniform(0.2, 0.8) * width
        np.minimum(field, distance(rows - y, columns - x, (height, width), random), out=field)
    return nearest_pixels(field, part)


def _box(rows: Grid, columns: Grid, size: tuple[int, int], random: Random) -> Grid:
    tall, wide = random.uniform(0.4, 1) * size[0], random.uniform(0.4, 1) * size[1]
    return np.maximum(np.abs(rows) / tall, np.abs(columns) / wide)


def _blob(rows: Grid, columns: Grid, _: tuple[int, int], random: Random) -> Grid:
    """Return the distance from the centre, in radii of an uneven outline."""
    angle, outline = np.arctan2(rows, columns), np.ones(rows.shape)
    for turns in _WAVES:
        outline += random.uniform(-0.3, 0.3) / turns * np.cos(turns * angle + random.uniform(0, 2 * math.pi))
    found: Grid = np.hypot(rows, columns) / (outline * random.uniform(0.5, 1))
    return found
