"""The memory of one batch on its way through a GPU, and the CUDA events that order its three streams."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Any

from numpy.typing import NDArray

from engines.cuda.api import Cuda, DeviceBuffer, Event, PinnedBuffer
from service.devices.gpu_layout import RegionSizes
from service.devices.memory_layout import ArrayRegion


class BatchBuffers:
    """Page-locked and device memory for one batch; it grows to the largest batch so far.

    Args:
        cuda: the GPU.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._events = ExitStack()
        self._memory = ExitStack()
        self.sizes = RegionSizes(0, 0, 0)
        self.staged = self._create_event()
        """Event: the batch has been uploaded to the regions `staged` and `scratch`."""
        self.engine_started = self._create_event()
        """Event: the engine starts."""
        self.engine_finished = self._create_event()
        """Event: the engine has finished."""
        self.converted = self._create_event()
        """Event: the output has been converted, and the engine's memory is free for the next batch."""
        self.done = self._create_event()
        """Event: the tiles are in host memory."""

    def reserve(self, sizes: RegionSizes) -> None:
        """Grow the memory to at least these sizes; no batch may be using it.

        Raises:
            EngineOutOfMemory: there is not enough memory; nothing stays allocated, and smaller sizes may be reserved.
        """
        wanted = self.sizes.grown_to(sizes)
        if wanted == self.sizes:
            return
        self._memory.close()
        self.sizes = RegionSizes(0, 0, 0)
        try:
            self.device_staged = self._allocate_on_device(wanted.staged)
            self.device_scratch = self._allocate_on_device(wanted.scratch)
            self.device_returned = self._allocate_on_device(wanted.returned)
            self.host_staged = self._allocate_pinned(wanted.staged)
            self.host_returned = self._allocate_pinned(wanted.returned)
        except BaseException:
            self._memory.close()
            raise
        self.sizes = wanted

    def close(self) -> None:
        """Free memory and events; may be called twice."""
        self._memory.close()
        self._events.close()

    def _create_event(self) -> Event:
        return self._events.enter_context(closing(self._cuda.event()))

    def _allocate_on_device(self, nbytes: int) -> DeviceBuffer:
        return self._memory.enter_context(closing(self._cuda.device_buffer(nbytes)))

    def _allocate_pinned(self, nbytes: int) -> PinnedBuffer:
        return self._memory.enter_context(closing(self._cuda.pinned_buffer(nbytes)))


def host_array(buffer: PinnedBuffer, part: ArrayRegion) -> NDArray[Any]:
    """A NumPy view of an array in page-locked memory; valid as long as the buffer."""
    return host_region(buffer, part).array(part.shape, part.dtype)


def host_region(buffer: PinnedBuffer, part: ArrayRegion) -> PinnedBuffer:
    """The page-locked memory of one array; a view that the caller must not close."""
    return PinnedBuffer(buffer.cuda, buffer.address + part.offset, part.nbytes)


def device_region(buffer: DeviceBuffer, part: ArrayRegion) -> DeviceBuffer:
    """The device memory of one array; a view that the caller must not close."""
    return DeviceBuffer(buffer.cuda, buffer.address + part.offset, part.nbytes)
