"""Samples: the engine's inputs made from a picture, the positions of their tiles, and the engine's results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from service.core.pictures import Bool2D, Box, Size

Strategy = Literal["auto", "crop", "whole"]
"""The way to cut a picture into tiles: around its holes, as a whole, or chosen automatically."""


@dataclass(frozen=True, slots=True)
class Crop:
    """The position of one tile in the picture: `box`, scaled and padded to the size `tile`.

    The box is scaled to the size `scaled` (its own size if nothing is scaled) and placed in the tile `below` rows and
    `right_of` columns from the top left corner; the rest of the tile is reflected padding.

    hole: the pixels of the box that this crop fills, H×W of the box; None: all masked pixels. Boxes of several
        crops may overlap; their holes never do.
    """

    box: Box
    scaled: Size
    tile: Size
    hole: Bool2D | None = field(default=None, compare=False, repr=False)
    below: int = 0
    right_of: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of a batch; its pictures stay uint8 until they are on the device.

    arrays: by tensor name. `image` uint8 H×W×C; `mask` uint8 H×W, 1 = fill; `latent` float32 Z, or S×Z;
        `label` uint8 H×W; `instance` int32 H×W; `reference` float32 C×H×W. H×W = `tile`.
    samples: S, how many tiles come back; more than 1 only for models that take several latents a row.
    """

    tile: Size
    arrays: Mapping[str, NDArray[Any]]
    samples: int = 1
    into: NDArray[np.uint8] | None = field(default=None, compare=False, repr=False)
    """The array that the resulting tile is written into, of the tile's shape; None: the device allocates one."""
    locked: bool = False
    """Whether `arrays` and `into` are in page-locked memory, which a GPU copies from and to directly."""


@dataclass(frozen=True, slots=True)
class ComputedSample:
    """The device worker's result for one sample, and how long it took, in seconds."""

    tile: NDArray[np.uint8]
    """H×W×C of the sample's tile: the generator's output clamped to [0, 1], times 255, rounded.

    S×H×W×C if the model accepts several latents a row.
    """
    batch_size: int
    queue_s: float
    infer_s: float
    device_s: float
    """The device time of the sample's batch: less than `infer_s` if other batches ran at the same time."""
    batch: str = ""
    """The `traceparent` of the span of the sample's batch; empty without tracing."""
