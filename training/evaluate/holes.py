"""Irregular holes for evaluation: brush strokes of random walks that cover an exact part of the picture.

They are drawn with `random.Random` and plain arithmetic, so that a seed gives the same holes with every version of
torch, OpenCV or Pillow, and figures remain comparable.
"""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
"""H×W, True where the picture is to be filled."""


class Band(NamedTuple):
    """A range of coverage, as fractions of the picture."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low * 100:g}-{self.high * 100:g} %"


def bands(coverage: Band) -> list[Band]:
    """Split the range into bands of 0.1; the last one may be shorter."""
    count = max(1, math.ceil(round((coverage.high - coverage.low) * 10, 6)))
    edges = [round(coverage.low + 0.1 * index, 6) for index in range(count)] + [coverage.high]
    return [Band(low, high) for low, high in pairwise(edges)]


def draw_hole(height: int, width: int, band: Band, random: Random) -> Mask:
    """Draw strokes whose coverage is uniformly distributed in the band.

    For every pixel the distance to the nearest stroke is computed; the threshold that gives the coverage is the edge
    of the hole. So all strokes grow or shrink together.
    """
    part = random.uniform(*band)
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float64)
    field = np.full((height, width), np.inf)
    for _ in range(1 + int(random.uniform(1, 4) + 12 * part)):
        half_thickness = min(height, width) * random.uniform(0.01, 0.05)
        corners = _walk(height, width, random)
        for start, end in pairwise(corners):
            np.minimum(field, _distance(rows, columns, start, end) - half_thickness, out=field)
    return nearest_pixels(field, part)


def nearest_pixels(distances: NDArray[np.float64], part: float) -> Mask:
    """Mark the pixels with the smallest distances, `part` of all (0 to 1), but at least one."""
    count = min(max(1, round(part * distances.size)), distances.size)
    hole = np.zeros(distances.size, np.bool_)
    hole[np.argsort(distances, axis=None, kind="stable")[:count]] = True
    return hole.reshape(distances.shape)


Point = tuple[float, float]


def _walk(height: int, width: int, random: Random) -> list[Point]:
    """Draw the corners of one stroke: a random start, then steps that turn by up to 70° either way."""
    y, x = random.uniform(0, height), random.uniform(0, width)
    heading, corners = random.uniform(0, 2 * math.pi), [(y, x)]
    for _ in range(2 + int(random.uniform(0, 7))):
        heading += random.uniform(-1.2, 1.2)
        step = min(height, width) * random.uniform(0.05, 0.25)
        y, x = y + step * math.sin(heading), x + step * math.cos(heading)
        corners.append((y, x))
    return corners


def _distance(rows: NDArray[np.float64], columns: NDArray[np.float64], start: Point, end: Point) -> NDArray[np.float64]:
    """Compute the distance from every pixel to the segment between two points."""
    (y, x), along_y, along_x = start, end[0] - start[0], end[1] - start[1]
    length = max(along_y**2 + along_x**2, 1e-12)
    part = (((rows - y) * along_y + (columns - x) * along_x) / length).clip(0, 1)
    squared: NDArray[np.float64] = (rows - y - part * along_y) ** 2 + (columns - x - part * along_x) ** 2
    return np.sqrt(squared)
