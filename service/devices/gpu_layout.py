"""Where the parts of a batch lie in a slot's memory on a GPU. Pure.

staged     uint8 as it comes from the host, and what is no picture as it is
scratch    pictures as floats on their way in; planes and verdicts on their way out
returned   uint8 tiles, and a histogram of each row's verdicts
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engines.base import BatchShape
from engines.manifest import Manifest
from engines.tensors import tensor_shape
from service.core.samples import Sample
from service.devices.memory_layout import Part, Placing

BINS = 256


class Region(NamedTuple):
    """Sizes in bytes of a slot's three regions."""

    staged: int
    scratch: int
    returned: int

    def grown_to(self, other: Region) -> Region:
        """What holds both."""
        return Region(*map(max, self, other))


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """One batch in a slot.

    staged: of every input; `image` uint8 N×H×W×C, `mask` uint8 N×1×H×W, the others as the manifest says.
    floats: of pictures with several channels, N×H×W×C on the way to N×C×H×W.
    planes: uint8 N×C×H×W of an output with several channels, on the way to `tiles`.
    verdicts: uint8 N×C×H×W: which values of the output were finite.
    tiles: uint8 N×H×W×C, or N×S×H×W×C where the model gives several samples of a row.
    counts: int32 N×256, how often each verdict came.
    """

    shape: BatchShape
    staged: tuple[Part, ...]
    floats: Part | None
    planes: Part | None
    verdicts: Part
    tiles: Part
    counts: Part
    sizes: Region

    @property
    def rows(self) -> int:
        """Pictures that come out."""
        return self.counts.shape[0]


def batch_shape_of(samples: Sequence[Sample]) -> BatchShape:
    """The shape of a batch of these samples, which are of one tile size."""
    first = samples[0]
    return BatchShape(len(samples), first.tile.height, first.tile.width, first.samples)


def padded_sizes(most: int) -> list[int]:
    """The batch sizes that are sent to a GPU, ascending: at most a third of a batch is padding.

    Each size and tile is a context and a graph of its own, so that there must not be too many.
    """
    sizes = {most}
    power = 1
    while power < most:
        sizes |= {power, power * 3 // 2} if power * 3 // 2 < most else {power}
        power *= 2
    return sorted(sizes)


def padded(shape: BatchShape, most: int) -> BatchShape:
    """The shape that a batch is computed in; a batch larger than `most` stays as it is."""
    rows = next((size for size in padded_sizes(most) if size >= shape.batch), shape.batch)
    return shape._replace(batch=rows)


def lay_out(manifest: Manifest, shape: BatchShape) -> BatchLayout:
    """The memory of a batch."""
    staged, scratch, returned = Placing(), Placing(), Placing()
    batch, height, width, _ = shape
    parts: list[Part] = []
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
        verdicts=scratch.add("verdicts", planes, "uint8"),
        tiles=returned.add("tiles", (*leading, height, width, channels), "uint8"),
        counts=returned.add("counts", (rows, BINS), "int32"),
        sizes=Region(staged.size, scratch.size, returned.size),
    )
