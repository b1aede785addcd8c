"""From the samples of one batch to their tiles on a CPU: uint8 to float and back, and the engine between.

Runs on the device worker's thread. A GPU does the same with CV-CUDA on streams of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from engines.base import Array, Engine
from engines.manifest import Manifest, TensorSpec
from service.core.samples import Sample

Tile = NDArray[np.uint8]
_TO_UNIT = np.float32(1 / 255)
_FITS_32_BITS = 1e6
"""OpenCV rounds to integers of 32 bits before it cuts off what is over 255; 255 times this is one."""


class CpuDevice:
    """Computes batches with numpy around an engine. Used by one thread."""

    def compute(self, engine: Engine, samples: Sequence[Sample]) -> list[Tile | None]:
        """One tile for each sample: uint8 H×W×C, or None where the generator's output was not finite.

        Raises:
            EngineFailed, EngineDead: as the engine says.
        """
        outputs = engine.infer(collate(engine.manifest, samples))
        return split(outputs["output"], [sample.into for sample in samples])


def collate(manifest: Manifest, samples: Sequence[Sample]) -> dict[str, Array]:
    """The feed of one batch: every input of the manifest, stacked, in the tensor contract's dtype and layout."""
    return {spec.name: _stack(spec, [sample.arrays[spec.name] for sample in samples]) for spec in manifest.inputs}


def _stack(spec: TensorSpec, rows: Sequence[Array]) -> Array:
    if spec.name in {"latent", "reference"}:
        return np.stack(rows).astype(np.float32, copy=False)
    if rows[0].ndim == 2:  # H×W: mask, label, instance
        return np.stack(rows, dtype=spec.dtype, casting="unsafe")[:, None]
    height, width, channels = rows[0].shape
    feed = np.empty((len(rows), channels, height, width), np.float32)
    for row, planes in zip(rows, feed, strict=True):
        for plane, target in zip(cv2.split(row), planes, strict=True):
            np.multiply(plane, _TO_UNIT, out=target)
    return feed


def split(output: Array, into: Sequence[Tile | None] = ()) -> list[Tile | None]:
    """Clamp N×C×H×W on the [0, 1] scale to uint8 tiles H×W×C, rounded; None for a row with NaN or infinity.

    N×S×C×H×W become S×H×W×C. Where `into` has an array for a row, its tile is written there.
    """
    tiles: list[Tile | None] = []
    for row, target in zip_longest(output, into):
        least, most = row.min(), row.max()  # either is NaN where anything is
        if not (np.isfinite(least) and np.isfinite(most)):
            tiles.append(None)
            continue
        unit: Any = np.ascontiguousarray(row, np.float32).reshape(-1, row.shape[-1])
        if least < 0:
            unit = cv2.threshold(unit, 0.0, 0.0, cv2.THRESH_TOZERO)[1]
        if most > _FITS_32_BITS:
            unit = np.minimum(unit, 1.0)
        planes = np.asarray(cv2.convertScaleAbs(unit, alpha=255.0), np.uint8)  # more than 255 becomes 255
        tiles.append(_interleaved(planes.reshape(row.shape), target))
    return tiles


def _interleaved(planes: NDArray[np.uint8], into: Tile | None) -> Tile:
    """(S×)C×H×W as (S×)H×W×C."""
    if planes.ndim == 3 and len(planes) > 1:
        tile = np.asarray(cv2.merge(list(planes), into), np.uint8)  # twice as fast as numpy
    else:
        tile = np.ascontiguousarray(np.moveaxis(planes, -3, -1))
    if into is None or tile is into:
        return tile
    np.copyto(into, tile)
    return into
