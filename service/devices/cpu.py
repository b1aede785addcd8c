"""A batch on a CPU: samples to float input, the engine, and its output to uint8 tiles.

Runs on the device worker's thread. On a GPU, CV-CUDA does the same on CUDA streams (gpu.py).
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
from service.core.batch_rows import Sample

Tile = NDArray[np.uint8]
_TO_UNIT = np.float32(1 / 255)
_FITS_32_BITS = 1e6
"""Values up to this, times 255, fit a 32-bit integer, to which OpenCV rounds before it saturates at 255."""


class CpuDevice:
    """Computes batches with numpy around an engine. Used by one thread."""

    def compute(self, engine: Engine, samples: Sequence[Sample]) -> list[Tile | None]:
        """Compute one tile for each sample: uint8 H×W×C, or None where the generator's output was not finite.

        Raises:
            EngineFailed, EngineDead: raised by the engine.
        """
        outputs = engine.infer(samples_to_inputs(engine.manifest, samples))
        return output_to_tiles(outputs["output"], [sample.into for sample in samples])


def samples_to_inputs(manifest: Manifest, samples: Sequence[Sample]) -> dict[str, Array]:
    """Stack the samples of a batch into the engine's inputs, by name, with the dtype and layout of the manifest."""
    return {spec.name: _stack_rows(spec, [sample.arrays[spec.name] for sample in samples]) for spec in manifest.inputs}


def _stack_rows(spec: TensorSpec, rows: Sequence[Array]) -> Array:
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


def output_to_tiles(output: Array, into: Sequence[Tile | None] = ()) -> list[Tile | None]:
    """Clamp N×C×H×W on the [0, 1] scale to uint8 tiles H×W×C, rounded; None for a row with NaN or infinity.

    N×S×C×H×W (S results of each row) gives tiles S×H×W×C. A row's tile is written into its array in `into`, if any.
    """
    tiles: list[Tile | None] = []
    for row, target in zip_longest(output, into):
        least, most = row.min(), row.max()  # NaN if any value of the row is
        if not (np.isfinite(least) and np.isfinite(most)):
            tiles.append(None)
            continue
        unit: Any = np.ascontiguousarray(row, np.float32).reshape(-1, row.shape[-1])
        if least < 0:
            unit = cv2.threshold(unit, 0.0, 0.0, cv2.THRESH_TOZERO)[1]
        if most > _FITS_32_BITS:
            unit = np.minimum(unit, 1.0)
        planes = np.asarray(cv2.convertScaleAbs(unit, alpha=255.0), np.uint8)  # saturates at 255
        tiles.append(_channels_last(planes.reshape(row.shape), target))
    return tiles


def _channels_last(planes: NDArray[np.uint8], into: Tile | None) -> Tile:
    """Move the channels last: (S×)C×H×W to (S×)H×W×C."""
    if planes.ndim == 3 and len(planes) > 1:
        tile = np.asarray(cv2.merge(list(planes), into), np.uint8)  # twice as fast as numpy
    else:
        tile = np.ascontiguousarray(np.moveaxis(planes, -3, -1))
    if into is None or tile is into:
        return tile
    np.copyto(into, tile)
    return into
