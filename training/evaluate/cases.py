"""The test cases of an evaluation: pictures with holes, or pairs of an input and its truth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from training.data.label_maps import facade_labels
from training.data.picture_files import picture_paths, picture_size, read_picture
from training.errors import DataMissing
from training.evaluate.holes import Band, Mask, bands
from training.evaluate.shapes import Kind, draw

Pixels = NDArray[np.uint8]
"""H×W×3, RGB."""
Direction = Literal["AtoB", "BtoA"]
LabelColours = Literal["facades"]
"""The data sets whose label colours are known."""
_THICKNESSES = (8, 16, 32, 64, 128)
"""Upper bounds of the classes of thickness, in pixels."""
_HOLE = 128
"""Grey value of a mask file from which a pixel is filled, as in the service."""


class Protocol(BaseModel):
    """The choice of test cases: which pictures, how large, with which holes.

    size: side of the centre crop in pixels, after its shorter side is scaled down to it; None keeps the whole picture.
    width: for whole pictures, pixels of the longer side after scaling.
    masks: a folder of mask files, used in order; None draws holes of `coverage` and `kinds` from `seed`, in turn.
    pairs: the direction of side-by-side pairs (A left, B right), for translations; None for inpainting.
    labels: the data set whose label colours the inputs of pairs have, for models of class ids; None for other models.
    limit: maximum number of pictures, by file name; None for all.
    """

    model_config = ConfigDict(frozen=True)

    data: Path
    size: int | None = Field(256, ge=16)
    width: int = Field(512, ge=16)
    masks: Path | None = None
    coverage: Band = Band(0.1, 0.5)
    kinds: tuple[Kind, ...] = ("strokes",)
    pairs: Direction | None = None
    labels: LabelColours | None = None
    seed: int = 0
    limit: int | None = None


class Case(NamedTuple):
    """One test case: the input, the truth, and the hole for inpainting."""

    name: str
    source: Pixels
    truth: Pixels
    hole: Mask | None
    """None where the model makes the whole picture."""
    band: str
    """The coverage band to which the case belongs."""
    kind: str = "all"
    """The kind of hole: strokes, boxes, blobs, or `given` by a file; `all` where the model makes the whole picture."""
    labels: NDArray[np.uint8] | None = None
    """Class ids H×W, where the source is a label map in colours."""

    @property
    def thickness(self) -> str:
        """The class of the largest distance from a pixel to be filled to a known one, such as `17-32 px`."""
        if self.hole is None:
            return "all"
        radius = float(cv2.distanceTransform(self.hole.astype(np.uint8), cv2.DIST_L2, 5).max())
        low = max((0, *(bound for bound in _THICKNESSES if bound < radius)))
        high = next((bound for bound in _THICKNESSES if radius <= bound), None)
        return f"{low + 1}-{high} px" if high else f"over {low} px"


def read_cases(protocol: Protocol) -> Iterator[Case]:
    """Yield the protocol's cases in the order of their file names; masks (`*_mask.*`) beside the pictures are skipped.

    Raises:
        DataMissing: a folder has no picture, a file is not a picture, or a mask is empty; the message names it.
    """
    paths = _list(protocol.data, masks=False)[: protocol.limit]
    if protocol.pairs:
        yield from (_pair(path, protocol.pairs, protocol.labels) for path in paths)
        return
    masks = _list(protocol.masks, masks=True) if protocol.masks else []
    for index, path in enumerate(paths):
        truth = _crop_or_scaled(read_picture(path), protocol)
        given = masks[index % len(masks)] if masks else None
        hole, band, kind = _given_hole(given, truth, protocol) if given else _drawn_hole(index, truth, protocol)
        yield Case(path.stem, truth, truth, hole, band, kind)


def check_pictures(protocol: Protocol) -> None:
    """Check from their headers, before a long run, that the protocol's pictures exist and are large enough.

    Raises:
        DataMissing: there are no pictures, or a file is not a picture or is smaller than the crops.
    """
    for path in _list(protocol.data, masks=False)[: protocol.limit]:
        width, height = picture_size(path)
        if not protocol.pairs and protocol.size is not None and min(width, height) < protocol.size:
            raise DataMissing(_too_small_message(protocol, width, height))


def count_pictures(protocol: Protocol) -> int:
    """Count the protocol's pictures.

    Raises:
        DataMissing: there are none.
    """
    return len(_list(protocol.data, masks=False)[: protocol.limit])


def _list(folder: Path, *, masks: bool) -> list[Path]:
    """List the folder's pictures by name; files named as masks are included only on request."""
    pictures = picture_paths(folder, below=False)
    found = [path for path in pictures if masks or not path.stem.endswith("_mask")]
    if not found:
        raise DataMissing(f"{folder}: no pictures (.jpg, .png, .webp) in it; is the path right?")
    return found


def _pair(path: Path, direction: Direction, labels: LabelColours | None) -> Case:
    both = read_picture(path)
    middle = both.shape[1] // 2
    left, right = both[:, :middle], both[:, middle : 2 * middle]
    source, truth = (left, right) if direction == "AtoB" else (right, left)
    return Case(path.stem, source, truth, None, "all", labels=facade_labels(source) if labels else None)


def _crop_or_scaled(pixels: Pixels, protocol: Protocol) -> Pixels:
    """Return the centre crop or the whole picture, shrunk by area averaging."""
    height, width = pixels.shape[:2]
    if protocol.size is None:
        return _scaled(pixels, protocol.width / max(height, width))
    small = _scaled(pixels, protocol.size / min(height, width)) if protocol.size < min(height, width) else pixels
    top, left = (small.shape[0] - protocol.size) // 2, (small.shape[1] - protocol.size) // 2
    if top < 0 or left < 0:
        raise DataMissing(_too_small_message(protocol, width, height))
    return small[top : top + protocol.size, left : left + protocol.size]


def _too_small_message(protocol: Protocol, width: int, height: int) -> str:
    return (
        f"{protocol.data}: a picture of {width}×{height} is smaller than the crops of {protocol.size} pixels; "
        "leave it out, or choose smaller crops"
    )


def _scaled(pixels: Pixels, scale: float) -> Pixels:
    size = round(pixels.shape[1] * scale), round(pixels.shape[0] * scale)
    scaled: Any = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)
    return np.asarray(scaled, np.uint8)


def _drawn_hole(index: int, truth: Pixels, protocol: Protocol) -> tuple[Mask, str, str]:
    """Draw a hole, its band and its kind; bands alternate, and kinds within each band, so that all are equally used."""
    choice = bands(protocol.coverage)
    band, kind = choice[index % len(choice)], protocol.kinds[index // len(choice) % len(protocol.kinds)]
    random = Random(f"{protocol.seed} {index}")  # noqa: S311 -- no secret
    return draw(kind, truth.shape[0], truth.shape[1], band, random), str(band), kind


def _given_hole(path: Path, truth: Pixels, protocol: Protocol) -> tuple[Mask, str, str]:
    grey = cv2.cvtColor(read_picture(path), cv2.COLOR_RGB2GRAY)
    hole: Mask = cv2.resize(grey, truth.shape[1::-1], interpolation=cv2.INTER_NEAREST) >= _HOLE
    covered = float(hole.mean())
    if not covered:
        height, width = hole.shape
        raise DataMissing(
            f"{path}: marks nothing to fill at {width}×{height}; a mask needs pixels of {_HOLE} and more, or remove it"
        )
    choice = bands(protocol.coverage)
    return hole, next((str(band) for band in choice if band.low <= covered < band.high), "other"), "given"
