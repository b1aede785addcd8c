"""The pictures of an INT8 export, with holes: some to calibrate on, others to judge the result."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from engines.manifest import SizeRule
from export.errors import CalibrationInvalid
from export.int8.gate import MIN_PICTURES
from retouch.sweep.cases import BANDS, Case, Pixels, crop_or_scale
from training.data.picture_files import picture_paths, read_picture
from training.errors import DataMissing
from training.evaluate.shapes import KINDS, draw

MIN_CALIBRATED, MAX_CALIBRATED = 32, 64
_MAX_SIDE = 512
"""Largest side of the pictures in pixels: larger tiles take minutes more and show the same values."""
_MIN_SIDE = 64


class Photograph(NamedTuple):
    """A file that decodes, and the SHA-256 digest of its pixels."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class PictureSplit:
    """A folder's pictures, in an order drawn from the seed: some to calibrate on, and others for the gate."""

    folder: Path
    seed: int
    calibrated: tuple[Photograph, ...]
    judging: tuple[Photograph, ...]

    @property
    def sha256(self) -> str:
        """The SHA-256 digest of the sorted digests of the calibration pictures."""
        return hashlib.sha256("".join(sorted(one.sha256 for one in self.calibrated)).encode()).hexdigest()


def split_pictures(folder: Path, seed: int, judging: int = MIN_PICTURES) -> PictureSplit:
    """Split the pictures of a folder and its subfolders; of pictures with the same pixels only one is taken.

    Only as many files are opened as are needed, one at a time.

    Raises:
        CalibrationInvalid: the folder is missing, has too few different pictures, or a file cannot be decoded.
    """
    if not folder.is_dir():
        raise CalibrationInvalid(f"{folder}: no such folder; --calibration names one with photographs")
    paths = picture_paths(folder)
    Random(seed).shuffle(paths)  # noqa: S311 -- no secret
    taken: dict[str, Photograph] = {}
    for path in paths:
        if len(taken) == judging + MAX_CALIBRATED:
            break
        one = _checked(path)
        if one is not None:
            taken.setdefault(one.sha256, one)
    least = judging + MIN_CALIBRATED
    if len(taken) < least:
        raise CalibrationInvalid(
            f"{folder}: {len(taken)} different pictures of {_MIN_SIDE} pixels or more, INT8 needs {least}: "
            f"{judging} to judge the result and at least {MIN_CALIBRATED} to calibrate on"
        )
    found = tuple(taken.values())
    return PictureSplit(folder, seed, found[judging:], found[:judging])


def cases(photographs: Sequence[Photograph], size: SizeRule, seed: str) -> Iterator[Case]:
    """Yield each picture with a hole: kinds and coverages in turn, sides of the smallest tile and of up to 512.

    Args:
        photographs: the pictures.
        size: the model's tiles.
        seed: the seed of the holes.
    """
    sides = _sides(size)
    cells = list(product(BANDS, KINDS))
    for index, photograph in enumerate(photographs):
        pixels = read(photograph.path)
        side = min(sides[index // len(cells) % len(sides)], *pixels.shape[:2])
        truth = crop_or_scale(pixels, side, square=True)
        if truth is None:  # cannot happen: the side is at most the picture's
            continue
        band, kind = cells[index % len(cells)]
        random = Random(f"{seed} {index}")  # noqa: S311 -- no secret
        yield Case(photograph.path.stem, side, band, kind, truth, draw(kind, side, side, band, random))


def read(path: Path) -> Pixels:
    """Decode a picture to RGB.

    Raises:
        CalibrationInvalid: it cannot be decoded.
    """
    try:
        return read_picture(path)
    except DataMissing as error:
        raise CalibrationInvalid(str(error)) from error


def _checked(path: Path) -> Photograph | None:
    """Return the file with its digest; None for one that is too small."""
    pixels: Pixels = read(path)
    if min(pixels.shape[:2]) < _MIN_SIDE:
        return None
    return Photograph(path, hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest())


def _sides(size: SizeRule) -> list[int]:
    """Return the side of the smallest square tile, and of the largest one up to 512 pixels."""
    square = [min(bucket) for bucket in size.tile_sizes()]
    return sorted({min(square), max((side for side in square if side <= _MAX_SIDE), default=min(square))})
