"""Decodes JPEGs in hardware to pixels on the host, without the rest of a picture's way: for hardware_jpeg.py."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

from engines.cuda.api import Cuda, DeviceBuffer, PinnedBuffer
from service.core.picture_work import JpegPlanes
from service.devices.pictures.kernels import KernelLauncher
from service.devices.pictures.lane import EncodedJpeg, plane_layout
from service.devices.pictures.memory import GrowingBuffer
from service.devices.pictures.nvjpeg import NvJpeg, NvJpegDecoder
from service.devices.pictures.steps import CHANNELS, PictureSteps


class JpegToHost(NamedTuple):
    """A file in host memory, and where its pixels go: page-locked, H×W×3 bytes."""

    address: int
    nbytes: int
    planes: JpegPlanes
    target: int


class JpegLane:
    """A decoder with a stream and memory of its own; one thread uses it. Several lanes keep the hardware busy.

    Args:
        cuda: the GPU, current on this thread.
        nvjpeg: the library.
        kernels: the conversion to RGB.
    """

    def __init__(self, cuda: Cuda, nvjpeg: NvJpeg, kernels: KernelLauncher) -> None:
        self._cuda = cuda
        self._resources = ExitStack()
        self._stream = self._resources.enter_context(closing(cuda.urgent_stream()))
        self._decoder = self._resources.enter_context(closing(NvJpegDecoder(nvjpeg)))
        self._planes = self._resources.enter_context(closing(GrowingBuffer(cuda)))
        self._pixels = self._resources.enter_context(closing(GrowingBuffer(cuda)))
        self._steps = PictureSteps(kernels, self._stream)

    def decode(self, files: Sequence[JpegToHost]) -> None:
        """Decode files; their pixels are in their targets when it returns.

        Raises:
            EngineOutOfMemory, DeviceLost, EngineFailed: no pixels are valid; which file is to blame is not known.
        """
        layouts, nbytes = plane_layout([file.planes for file in files])
        sizes = [CHANNELS * file.planes.height * file.planes.width for file in files]
        self._planes.reserve(nbytes)
        self._pixels.reserve(max(sizes))
        encoded = [
            EncodedJpeg(file.address, file.nbytes, file.planes, channels).moved(self._planes.address)
            for file, channels in zip(files, layouts, strict=True)
        ]
        pixels = self._pixels.address
        try:
            self._decoder.start(encoded, self._stream)
            for file, one, size in zip(files, encoded, sizes, strict=True):
                self._steps.to_pixels(file.planes, one.channels, 1, pixels)
                target, source = PinnedBuffer(self._cuda, file.target, size), DeviceBuffer(self._cuda, pixels, size)
                self._cuda.copy_out(target, source, size, self._stream)
        finally:
            self._stream.synchronise()

    def close(self) -> None:
        """Free the memory and the decoder."""
        self._resources.close()
