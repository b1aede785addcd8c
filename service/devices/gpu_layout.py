"""Memory layout of a batch on a GPU: the arrays in its three regions. Pure.

staged     inputs as they are uploaded: pictures and masks as uint8, the others with the manifest's dtype
scratch    pictures as floats before the engine; output planes and finite codes after it
returned   uint8 tiles, and a histogram of each row's finite codes
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engines.base import BatchShape
from engines.manifest import Manifest
from engines.tensors import tensor_shape
from service.core.batch_rows import Sample
from service.devices.memory_layout import ArrayRegion, LayoutBuilder

BINS = 256


class RegionSizes(NamedTuple):
    """Sizes in bytes of a batch's three regions: staged inputs, scratch, and the output returned to the host."""

    staged: int
    scratch: int
    returned: int

    def grown_to(self, other: RegionSizes) -> RegionSizes:
        """The larger of both sizes for each region."""
        return RegionSizes(*map(max, self, other))


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """The arrays of one batch.

    staged: one for each input: `image` uint8 N×H×W×C, `mask` uint8 N×1×H×W, the others as in the manifest.
    floats: float32 N×H×W×C, pictures with several channels before they become N×C×H×W.
    planes: uint8 N×C×H×W, an output with several channels before it becomes `tiles`.
    finite_codes: uint8 N×C×H×W, a code for each output value that says whether it was finite.
    tiles: uint8 N×H×W×C, or N×S×H×W×C where the model gives S results for each row.
    counts: int32 N×256, the histogram of the codes of each row.
    """

    shape: BatchShape
    staged: tuple[ArrayRegion, ...]
    floats: ArrayRegion | None
    planes: ArrayRegion | None
    finite_codes: ArrayRegion
    tiles: ArrayRegion
    counts: ArrayRegion
    sizes: RegionSizes

    @property
    def rows(self) -> int:
        """Number of pictures that the batch returns."""
        return self.counts.shape[0]


def batch_shape_of(samples: Sequence[Sample]) -> BatchShape:
    """The shape of a batch of samples with one tile size."""
    first = samples[0]
    return BatchShape(len(samples), first.tile.height, first.tile.width, first.samples)


def padded_batch_sizes(max_rows: int) -> list[int]:
    """The batch sizes that are sent to a GPU, ascending: 1, 2, 3, 4, 6, 8, 12, … `max_rows`.

    At most a third of a batch is padding. There are few sizes because each needs its own context and CUDA graph.
    """
    sizes = {max_rows}
    power = 1
    while power < max_rows:
        sizes |= {power, power * 3 // 2} if power * 3 // 2 < max_rows else {power}
        power *= 2
    return sorted(sizes)


def padded_batch_size(shape: BatchShape, max_rows: int) -> BatchShape:
    """Round a batch up to the next padded size; a batch larger than `max_rows` stays as it is."""
    rows = next((size for size in padded_batch_sizes(max_rows) if size >= shape.batch), shape.batch)
    return shape._replace(batch=rows)


def lay_out_batch(manifest: Manifest, shape: BatchShape) -> BatchLayout:
    """Lay out the memory of a batch of this shape."""
    staged, scratch, returned = LayoutBuilder(), LayoutBuilder(), LayoutBuilder()
    batch, height, width, _ = shape
    parts: list[ArrayRegion] = []
    floats = None
    for spec in manifest.inputs:
        if spec.name == "image":
            pixels = (batch, height, width, manifest.image_channels)
            parts.append(staged.add("image", pixels, "uint8"))
            floats = scratch.add("floats", pixels, "float32") if manifest.image_channels > 1 else None
        else:
            dtype = "uint8" if spec.name == "mask" else spec.dtype
            parts.append(staged.add(spec.name, tensor_shape(spec, shape), dtype))
    output = tensor_shape(manifest.output, shape)
    leading, channels = output[:-3], output[-3]
    rows = math.prod(leading)
    planes = (rows, channels, height, width)
    return BatchLayout(
        shape=shape,
        staged=tuple(parts),
        floats=floats,
        planes=scratch.add("planes", planes, "uint8") if channels > 1 else None,
        finite_codes=scratch.add("finite_codes", planes, "uint8"),
        tiles=returned.add("tiles", (*leading, height, width, channels), "uint8"),
        counts=returned.add("counts", (rows, BINS), "int32"),
        sizes=RegionSizes(staged.size, scratch.size, returned.size),
    )
