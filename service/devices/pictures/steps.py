"""The steps of a picture on a GPU, each one or several kernels on a stream: what the CPU computes, in its arithmetic.

decoded planes ─▶ upright pixels ─▶ tile and its mask ─▶ (engine) ─▶ seam ─▶ pasted fill

Pixels are dense H×W×3 bytes, masks dense H×W bytes. Their addresses are on the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engines.cuda.api import Stream
from service.core.batch_rows import Crop
from service.core.picture_work import JpegPlanes, PastePart
from service.core.pictures import Size
from service.devices.pictures.kernels import KernelLauncher

_UNSCALED, _AREA, _CUBIC = 0, 1, 2
CHANNELS = 3
_FIELD_BYTES = 4
"""Bytes a pixel of a field: distances, or labels."""
_FIELDS = 6


class Plane(NamedTuple):
    """One decoded plane: its address, and bytes from a row to the next."""

    address: int
    pitch: int


class PictureOnGpu(NamedTuple):
    """An upright picture on the GPU: the addresses of its pixels and of its mask, and its size."""

    pixels: int
    mask: int
    size: Size


@dataclass(frozen=True, slots=True)
class Seam:
    """A computed seam: addresses of distances (16 fractional bits) and labels, dense fields of a part."""

    distance: int
    nearest: int


def seam_scratch_bytes(size: Size) -> int:
    """Memory that the seam of a part of that size is computed in."""
    return _FIELDS * _FIELD_BYTES * size.height * size.width


@dataclass(frozen=True, slots=True)
class PictureSteps:
    """Queues steps on one stream."""

    kernels: KernelLauncher
    stream: Stream

    def to_pixels(self, planes: JpegPlanes, channels: Sequence[Plane], orientation: int, pixels: int) -> None:
        """Enlarge chroma, convert to RGB, and turn upright, as libjpeg-turbo and the codec do."""
        addresses, pitches = [plane.address for plane in channels], [plane.pitch for plane in channels]
        self._launch("ycc_to_rgb", Size(*planes[:2]), *addresses, pixels, *pitches, *planes, orientation)

    def cut(self, picture: PictureOnGpu, crop: Crop, tile: int, *, symmetric: bool) -> None:
        """Cut a crop's tile out of a picture."""
        pitch, box = CHANNELS * picture.size.width, crop.box
        corner = picture.pixels + box.top * pitch + CHANNELS * box.left
        how = _filter_for(box.size, crop.scaled)
        place = (tile, *crop.tile, crop.below, crop.right_of, int(symmetric))
        self._launch("cut_picture", crop.tile, corner, pitch, *box.size, *crop.scaled, how, *place)

    def cut_mask(self, picture: PictureOnGpu, crop: Crop, tile: int, *, symmetric: bool) -> None:
        """Cut the mask of a crop's tile out of a picture's mask."""
        pitch, box = picture.size.width, crop.box
        place = (tile, *crop.tile, crop.below, crop.right_of, int(symmetric))
        corner = picture.mask + box.top * pitch + box.left
        self._launch("cut_mask", crop.tile, corner, pitch, *box.size, *crop.scaled, *place)

    def find_seam(self, picture: PictureOnGpu, part: PastePart, scratch: int) -> Seam:
        """Find the seam of a part of a picture; it lies in `scratch` until that is used again.

        Two fields hold the result of the forward rounds, which the backward rounds read; the others take turns.
        """
        box, extent, pitch = part.part, part.part.size, picture.size.width
        nbytes = _FIELD_BYTES * extent.height * extent.width
        fields = [scratch + number * nbytes for number in range(_FIELDS)]
        here, there, other = fields[0:2], fields[2:4], fields[4:6]
        self._launch("seam_start", extent, picture.mask + box.top * pitch + box.left, pitch, *here, *extent)
        for _ in range(part.seam):
            self._launch("seam_forward", extent, *here, *there, *extent)
            here, there = there, here
        forward = here
        for _ in range(part.seam):
            self._launch("seam_backward", extent, *forward, *here, *there, *extent)
            here, there = there, other if here is forward else here
        return Seam(*here)

    def paste(self, picture: PictureOnGpu, crop: Crop, part: PastePart, hole: int, tile: int, seam: Seam) -> None:
        """Paste a crop's fill into a picture; `hole` is the address of `part.hole`, `seam` what `find_seam` found."""
        pitch, box = CHANNELS * picture.size.width, part.part
        corner = picture.pixels + box.top * pitch + CHANNELS * box.left
        row = CHANNELS * crop.tile.width
        region = tile + crop.below * row + CHANNELS * crop.right_of
        how = _filter_for(crop.scaled, crop.box.size)
        within = (box.top - crop.box.top, box.left - crop.box.left)
        extent, source = box.size, (region, row, *crop.scaled, *crop.box.size, how, *within)
        values = (corner, pitch, hole, extent.width, *extent, *source, seam.distance, seam.nearest, part.seam)
        self._launch("paste", extent, *values)

    def _launch(self, name: str, area: Size, *values: int) -> None:
        self.kernels.launch(name, *area, values, self.stream)


def _filter_for(have: Size, wanted: Size) -> int:
    """The filter that the CPU scales with: the mean where both sides shrink, cubic where one grows."""
    if have == wanted:
        return _UNSCALED
    return _AREA if have.height >= wanted.height and have.width >= wanted.width else _CUBIC
