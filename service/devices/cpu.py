"""A batch on a CPU: samples to float input, the engine, and its output to uint8 tiles.

Runs on the device worker's thread. On a GPU, CV-CUDA does the same on CUDA streams (gpu.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from engines.base import Array, Engine
from engines.manifest import Manifest, TensorSpec
from service.core.batch_rows import Sample
from service.devices import planes
from service.devices.planes import Tile
from service.devices.planes_kernel import installed_kernel


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
    write = planes if (kernel := installed_kernel()) is None else kernel
    for row, target in zip(rows, feed, strict=True):
        write.to_planes(row, target)
    return feed


def output_to_tiles(output: Array, into: Sequence[Tile | None] = ()) -> list[Tile | None]:
    """Clamp N×C×H×W on the [0, 1] scale to uint8 tiles H×W×C, rounded; None for a row with NaN or infinity.

    N×S×C×H×W (S results of each row) gives tiles S×H×W×C. A row's tile is written into its array in `into`, if any.
    """
    convert = planes if (kernel := installed_kernel()) is None else kernel
    return [convert.to_tile(row, target) for row, target in zip_longest(output, into)]
