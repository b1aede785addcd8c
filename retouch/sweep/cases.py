"""The cases of a sweep: the pictures of a folder, framed to a size, with holes of every kind and coverage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from training.data.picture_files import picture_paths, read_picture
from training.errors import DataMissing
from training.evaluate.holes import Band, Mask
from training.evaluate.shapes import KINDS, Kind, draw

Pixels = NDArray[np.uint8]
"""H×W×3, RGB."""
BANDS = (Band(0.05, 0.2), Band(0.2, 0.4), Band(0.4, 0.6), Band(0.6, 0.75))


class Case(NamedTuple):
    """One picture with a hole, and its cell: size, coverage and kind of hole."""

    name: str
    size: int
    band: Band
    kind: Kind
    truth: Pixels
    hole: Mask


def find_pictures(folder: Path, seed: int) -> list[Path]:
    """Find the pictures in a folder and its subfolders, shuffled by the seed.

    Raises:
        DataMissing: the folder has no pictures.
    """
    found = picture_paths(folder)
    if not found:
        raise DataMissing(f"{folder}: no pictures (.jpg, .png, .webp) in it; is the path right?")
    Random(seed).shuffle(found)  # noqa: S311 -- no secret
    return found


def check_pictures(paths: Sequence[Path], framings: Sequence[tuple[int, bool]], count: int) -> None:
    """Decode the pictures that `draw_cases` will take: a broken one, met after hours, would cost all figures.

    Args:
        paths: files of pictures.
        framings: each size, and whether square centre crops are cut.
        count: the number of cases of each size.

    Raises:
        DataMissing: as for `draw_cases`.
    """
    fitting = dict.fromkeys(framings, 0)
    for path in paths:
        if min(fitting.values()) >= count:
            return
        height, width = read_picture(path).shape[:2]
        for size, square in framings:
            fitting[size, square] += _fits(height, width, size, square=square)
    for (size, _), number in fitting.items():
        if not number:
            raise DataMissing(_too_small_message(paths, size))


def draw_cases(paths: Sequence[Path], size: int, square: bool, per_cell: int, seed: int) -> Iterator[Case]:
    """Draw `per_cell` cases for each coverage and kind, in rounds over all cells; pictures repeat when all were used.

    Args:
        paths: files of pictures; those that are too small are skipped.
        size: side of square centre crops, or the longer side of whole pictures, in pixels.
        square: whether to cut square centre crops.
        per_cell: the number of pictures for each cell.
        seed: the seed of the holes.

    Raises:
        DataMissing: no picture is large enough, or one cannot be decoded.
    """
    frames = _cropped_pictures(paths, size, square=square)
    for index, (band, kind) in enumerate(list(product(BANDS, KINDS)) * per_cell):
        name, truth = next(frames)
        random = Random(f"{seed} {size} {index}")  # noqa: S311 -- no secret
        yield Case(name, size, band, kind, truth, draw(kind, truth.shape[0], truth.shape[1], band, random))


def _cropped_pictures(paths: Sequence[Path], size: int, *, square: bool) -> Iterator[tuple[str, Pixels]]:
    too_small: set[Path] = set()
    for path in cycle(paths):
        framed = crop_or_scale(read_picture(path), size, square=square)
        if framed is not None:
            yield path.stem, framed
            continue
        too_small.add(path)
        if len(too_small) == len(paths):
            raise DataMissing(_too_small_message(paths, size))


def _too_small_message(paths: Sequence[Path], size: int) -> str:
    return f"none of {len(paths)} pictures has {size} pixels; give larger ones, or smaller --sizes"


def _fits(height: int, width: int, size: int, *, square: bool) -> bool:
    """Return whether a picture can be cropped or scaled to `size` without being enlarged."""
    return size <= (min(height, width) if square else max(height, width))


def crop_or_scale(pixels: Pixels, size: int, *, square: bool) -> Pixels | None:
    """Scale the shorter side to `size` and cut the square centre, or scale the whole picture to that longer side.

    Returns None if the picture would have to be enlarged.
    """
    height, width = pixels.shape[:2]
    if not _fits(height, width, size, square=square):
        return None
    scale = size / (min(height, width) if square else max(height, width))
    small: Any = pixels
    if scale < 1:
        small = cv2.resize(
            pixels, (max(1, round(width * scale)), max(1, round(height * scale))), interpolation=cv2.INTER_AREA
        )
    if not square:
        return np.ascontiguousarray(small)
    top, left = (small.shape[0] - size) // 2, (small.shape[1] - size) // 2
    return np.ascontiguousarray(small[top : top + size, left : left + size])
