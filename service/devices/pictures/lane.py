"""One stream of a GPU that decodes pictures, cuts tiles out of them, and pastes fills into them. One thread uses it.

Tiles and fills cross the bus between the steps, so that the engine's batches are those of pictures from a CPU. They are
page-locked in a server of several processes, and a picture of 512² takes 0.02 ms then.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from engines.cuda.api import Cuda, DeviceBuffer, PinnedBuffer, Stream
from engines.cuda.quick_calls import QuickCalls
from service.core.picture_work import JpegPlanes, PictureWork
from service.core.pictures import Size
from service.devices.pictures.kernels import KernelLauncher
from service.devices.pictures.memory import GrowingBuffer
from service.devices.pictures.steps import CHANNELS, PictureOnGpu, PictureSteps, Plane, seam_scratch_bytes

Bytes = NDArray[np.uint8]
_ALIGNED = 256
_BLOCK = 16
"""Rows of a plane are rounded up to whole blocks, should the hardware write them."""
_LONGEST_QUEUE = 512
"""Kernels that a lane starts before it waits: a start that finds the driver's queue full would keep the interpreter."""


class EncodedJpeg(NamedTuple):
    """A file in host memory for the decoder, and where on the GPU its planes go."""

    address: int
    nbytes: int
    planes: JpegPlanes
    channels: tuple[Plane, ...]

    def moved(self, by: int) -> EncodedJpeg:
        """The same with planes `by` bytes further on."""
        return self._replace(channels=tuple(Plane(plane.address + by, plane.pitch) for plane in self.channels))


class PlanesDecoder(Protocol):
    """Decodes JPEGs to planes."""

    def start(self, files: Sequence[EncodedJpeg], stream: Stream) -> None:
        """Queue the decoding of files, which must stay in memory until the stream has done it.

        Raises:
            EngineOutOfMemory, EngineFailed, DeviceLost: no plane is valid; which file is to blame is not known.
        """

    def close(self) -> None:
        """Free what the decoder holds."""


@dataclass(frozen=True, slots=True, eq=False)
class CutOrder:
    """A picture to decode and cut; `memory` will hold it, `tiles` and `masks` are written, one for each crop.

    locked: whether all arrays, those of `work` too, are page-locked.
    """

    work: PictureWork
    memory: DeviceBuffer
    tiles: Sequence[Bytes]
    masks: Sequence[Bytes]
    locked: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PasteOrder:
    """A picture in `memory` to paste fills into, one for each crop; `result` is written, H×W×3. `locked` as before."""

    work: PictureWork
    memory: DeviceBuffer
    fills: Sequence[Bytes]
    result: Bytes
    locked: bool = False


def picture_bytes(size: Size) -> int:
    """Memory that a picture takes on the GPU, with its mask."""
    pixels = size.height * size.width
    return _aligned(CHANNELS * pixels) + pixels


class PictureLane:
    """A stream of high priority with a decoder and memory of its own.

    Args:
        cuda: the GPU, current on this thread.
        decoder: decodes on this lane only; closed with it.
        kernels: the kernels on that GPU.
        quick_calls: copy page-locked memory; None: `cuda` does, as other memory.
    """

    def __init__(
        self, cuda: Cuda, decoder: PlanesDecoder, kernels: KernelLauncher, quick_calls: QuickCalls | None = None
    ) -> None:
        self._cuda = cuda
        self._quick_calls = quick_calls
        self._queued = 0
        self._decoder = decoder
        self._resources = ExitStack()
        self._stream = self._resources.enter_context(closing(cuda.urgent_stream()))
        self._done = self._resources.enter_context(closing(cuda.sleeping_event()))
        self._steps = PictureSteps(kernels, self._stream)
        self._planes, self._tile, self._hole, self._seam = (
            self._resources.enter_context(closing(GrowingBuffer(cuda))) for _ in range(4)
        )
        self._resources.callback(decoder.close)

    def cut(self, orders: Sequence[CutOrder]) -> None:
        """Decode pictures and cut their tiles, all in one call of the decoder; they are written when it returns.

        Raises:
            EngineOutOfMemory, EngineFailed, DeviceLost: no tile is valid; which picture is to blame is not known.
        """
        layouts, nbytes = plane_layout([order.work.planes for order in orders])
        self._planes.reserve(nbytes)
        self._tile.reserve(max(_aligned(tile.nbytes) + mask.nbytes for order in orders for tile, mask in _pairs(order)))
        files = [
            EncodedJpeg(*_file_memory(order.work.file), order.work.planes, channels).moved(self._planes.address)
            for order, channels in zip(orders, layouts, strict=True)
        ]
        try:
            self._decoder.start(files, self._stream)
            for order, file in zip(orders, files, strict=True):
                self._cut_one(order, file)
        finally:
            self._wait()

    def paste(self, orders: Sequence[PasteOrder]) -> None:
        """Paste fills into pictures; the results are written when it returns.

        Raises:
            EngineOutOfMemory, EngineFailed, DeviceLost: no result is valid.
        """
        parts = [part for order in orders for part in order.work.parts if part is not None]
        self._tile.reserve(max(fill.nbytes for order in orders for fill in order.fills))
        self._hole.reserve(max((part.hole.nbytes for part in parts), default=0))
        self._seam.reserve(max((seam_scratch_bytes(part.part.size) for part in parts), default=0))
        held: list[Bytes] = []
        try:
            for order in orders:
                self._paste_one(order, held)
        finally:
            self._wait()

    def close(self) -> None:
        """Free stream, memory and decoder."""
        self._resources.close()

    def _wait(self) -> None:
        """Wait until the stream has done its work, asleep: several lanes wait, and cores are what is short."""
        self._done.record(self._stream)
        self._done.synchronise()
        self._queued = 0

    def _reserve_queue(self, kernels: int) -> None:
        """Wait for what was started if so many kernels more would be too many."""
        if self._queued + kernels > _LONGEST_QUEUE:
            self._wait()
        self._queued += kernels

    def _cut_one(self, order: CutOrder, file: EncodedJpeg) -> None:
        work, picture = order.work, _place(order.work, order.memory)
        self._steps.to_pixels(work.planes, file.channels, work.orientation, picture.pixels)
        self._copy_in(picture.mask, work.mask, locked=order.locked)
        for crop, (tile, mask) in zip(work.crops, _pairs(order), strict=True):
            self._reserve_queue(2)
            mask_address = self._tile.address + _aligned(tile.nbytes)
            self._steps.cut(picture, crop, self._tile.address, symmetric=work.symmetric)
            self._steps.cut_mask(picture, crop, mask_address, symmetric=work.symmetric)
            self._copy_out(tile, self._tile.address, locked=order.locked)
            self._copy_out(mask, mask_address, locked=order.locked)

    def _paste_one(self, order: PasteOrder, held: list[Bytes]) -> None:
        work, picture = order.work, _place(order.work, order.memory)
        for crop, part, fill in zip(work.crops, work.parts, order.fills, strict=True):
            if part is None:
                continue
            self._reserve_queue(2 + 2 * part.seam)
            hole = np.ascontiguousarray(part.hole).view(np.uint8)
            held.append(hole)
            self._copy_in(self._tile.address, fill, locked=order.locked)
            self._copy_in(self._hole.address, hole, locked=order.locked)
            seam = self._steps.find_seam(picture, part, self._seam.address)
            self._steps.paste(picture, crop, part, self._hole.address, self._tile.address, seam)
        self._copy_out(order.result, picture.pixels, locked=order.locked)

    def _copy_in(self, address: int, array: NDArray[Any], *, locked: bool) -> None:
        target, source = DeviceBuffer(self._cuda, address, array.nbytes), _host_memory(self._cuda, array)
        if locked and self._quick_calls is not None:
            self._quick_calls.copy_in(address, source.address, array.nbytes, int(self._stream.handle))
            return
        self._cuda.copy_in(target, source, array.nbytes, self._stream)

    def _copy_out(self, array: NDArray[Any], address: int, *, locked: bool) -> None:
        target, source = _host_memory(self._cuda, array), DeviceBuffer(self._cuda, address, array.nbytes)
        if locked and self._quick_calls is not None:
            self._quick_calls.copy_out(target.address, address, array.nbytes, int(self._stream.handle))
            return
        self._cuda.copy_out(target, source, array.nbytes, self._stream)


def _pairs(order: CutOrder) -> list[tuple[Bytes, Bytes]]:
    return list(zip(order.tiles, order.masks, strict=True))


def _place(work: PictureWork, memory: DeviceBuffer) -> PictureOnGpu:
    """Where a picture and its mask lie in their memory."""
    size = work.size
    return PictureOnGpu(memory.address, memory.address + _aligned(CHANNELS * size.height * size.width), size)


def plane_layout(files: Sequence[JpegPlanes]) -> tuple[list[tuple[Plane, ...]], int]:
    """The planes of files one after another, as offsets in one block of memory; and the size of the block."""
    layouts, offset = [], 0
    for planes in files:
        channels = []
        for rows, columns in (planes[:2], planes.chroma, planes.chroma):
            pitch = _aligned(columns)
            channels.append(Plane(offset, pitch))
            offset += -(-rows // _BLOCK) * _BLOCK * pitch
        layouts.append(tuple(channels))
    return layouts, offset


def _file_memory(data: bytes | Bytes) -> tuple[int, int]:
    """Address and length of a file, which must stay alive."""
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0]), len(data)


def _host_memory(cuda: Cuda, array: NDArray[Any]) -> PinnedBuffer:
    """The memory of a dense array, page-locked or not; a view that the caller must not close."""
    assert array.flags.c_contiguous  # noqa: S101 -- tiles, masks and results are made so
    return PinnedBuffer(cuda, int(array.__array_interface__["data"][0]), array.nbytes)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED
