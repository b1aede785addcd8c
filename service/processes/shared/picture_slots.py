"""Slots of pictures: a file with its mask and its plan, and the arrays that a GPU and the engine write.

Both processes lay a slot out from the same facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from service.core.batch_rows import Crop
from service.core.picture_work import JpegPlanes, PastePart, PictureArrays, PictureWork
from service.core.pictures import Box, Size
from service.devices.memory_layout import PAGE, ArrayRegion, LayoutBuilder
from service.processes.shared.messages import CropFacts, PictureFacts


class SlotMemory(Protocol):
    """Shared memory with arrays in its slots."""

    nbytes: int

    def array(self, offset: int, part: ArrayRegion) -> NDArray[Any]:
        """An array in the slot at `offset`."""


@dataclass(frozen=True, slots=True)
class PictureLayout:
    """Layout of a picture's slot; `holes` has None for a crop that fills nothing."""

    file: ArrayRegion
    mask: ArrayRegion
    holes: tuple[ArrayRegion | None, ...]
    tiles: tuple[ArrayRegion, ...]
    masks: tuple[ArrayRegion, ...]
    fills: tuple[ArrayRegion, ...]
    result: ArrayRegion
    nbytes: int


def facts_of(work: PictureWork) -> PictureFacts:
    """The facts of a picture, to be sent."""
    crops = [
        CropFacts(
            crop.box,
            crop.scaled,
            crop.tile,
            crop.below,
            crop.right_of,
            None if part is None else part.part,
            0 if part is None else part.seam,
        )
        for crop, part in zip(work.crops, work.parts, strict=True)
    ]
    return PictureFacts(len(work.file), work.planes, work.orientation, *work.size, work.symmetric, crops)


def lay_out_picture(facts: PictureFacts) -> PictureLayout:
    """Lay out the slot of a picture."""
    placing = LayoutBuilder()
    crops = facts.crops
    file = placing.add("file", (facts.file_bytes,), "uint8")
    mask = placing.add("mask", (facts.height, facts.width), "uint8")
    holes = tuple(
        None if crop.part is None else placing.add("hole", tuple(Box(*crop.part).size), "uint8") for crop in crops
    )
    tiles = tuple(placing.add("tile", (*crop.tile, 3), "uint8") for crop in crops)
    masks = tuple(placing.add("tile_mask", crop.tile, "uint8") for crop in crops)
    fills = tuple(placing.add("fill", (*crop.tile, 3), "uint8") for crop in crops)
    result = placing.add("result", (facts.height, facts.width, 3), "uint8")
    return PictureLayout(file, mask, holes, tiles, masks, fills, result, -(-placing.size // PAGE) * PAGE)


def write_picture(memory: SlotMemory, offset: int, layout: PictureLayout, work: PictureWork) -> None:
    """Copy a picture's file, mask and holes into its slot."""
    np.copyto(memory.array(offset, layout.file), np.frombuffer(work.file, np.uint8))
    np.copyto(memory.array(offset, layout.mask), work.mask)
    for region, part in zip(layout.holes, work.parts, strict=True):
        if region is not None and part is not None:
            np.copyto(memory.array(offset, region), part.hole.view(np.uint8))


def read_picture(
    memory: SlotMemory, offset: int, facts: PictureFacts, *, locked: bool
) -> tuple[PictureWork, PictureArrays]:
    """The picture in a slot, not copied.

    Raises:
        ValueError: the slot is outside the memory.
    """
    layout = lay_out_picture(facts)
    if not 0 <= offset <= memory.nbytes - layout.nbytes:
        raise ValueError(f"a slot of {layout.nbytes} bytes at {offset} is not within {memory.nbytes} bytes")
    crops = tuple(
        Crop(Box(*one.box), Size(*one.scaled), Size(*one.tile), None, one.below, one.right_of) for one in facts.crops
    )
    parts = tuple(
        None
        if region is None or one.part is None
        else PastePart(Box(*one.part), memory.array(offset, region).view(np.bool_), one.seam)
        for one, region in zip(facts.crops, layout.holes, strict=True)
    )
    work = PictureWork(
        memory.array(offset, layout.file),
        JpegPlanes(*facts.planes),
        facts.orientation,
        memory.array(offset, layout.mask),
        crops,
        parts,
        facts.symmetric,
    )
    tiles, masks, fills = (
        tuple(memory.array(offset, region) for region in regions)
        for regions in (layout.tiles, layout.masks, layout.fills)
    )
    return work, PictureArrays(tiles, masks, fills, memory.array(offset, layout.result), locked)
