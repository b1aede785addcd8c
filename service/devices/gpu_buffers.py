"""A slot: the memory of one batch on its way through a GPU, and the marks that order its three streams."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Any

from numpy.typing import NDArray

from engines.cuda.api import Cuda, DeviceBuffer, Event, PinnedBuffer
from service.devices.gpu_layout import Region
from service.devices.memory_layout import Part


class Slot:
    """Page-locked and device memory for one batch; it grows to the largest that it has seen.

    Args:
        cuda: the device.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._marks = ExitStack()
        self._memory = ExitStack()
        self.sizes = Region(0, 0, 0)
        self.staged = self._mark()
        """The batch is in `staged` and `scratch`."""
        self.begun = self._mark()
        """The engine begins."""
        self.computed = self._mark()
        """The engine is done."""
        self.converted = self._mark()
        """Nothing reads the engine's memory any more."""
        self.done = self._mark()
        """The tiles are on the host."""

    def reserve(self, sizes: Region) -> None:
        """Make room; nothing of the slot may be in use.

        Raises:
            EngineOutOfMemory: there is not that much; the slot is empty then and can be used for less.
        """
        wanted = self.sizes.grown_to(sizes)
        if wanted == self.sizes:
            return
        self._memory.close()
        self.sizes = Region(0, 0, 0)
        try:
            self.device_staged = self._device(wanted.staged)
            self.device_scratch = self._device(wanted.scratch)
            self.device_returned = self._device(wanted.returned)
            self.host_staged = self._pinned(wanted.staged)
            self.host_returned = self._pinned(wanted.returned)
        except BaseException:
            self._memory.close()
            raise
        self.sizes = wanted

    def close(self) -> None:
        """Free everything; twice is allowed."""
        self._memory.close()
        self._marks.close()

    def _mark(self) -> Event:
        return self._marks.enter_context(closing(self._cuda.event()))

    def _device(self, nbytes: int) -> DeviceBuffer:
        return self._memory.enter_context(closing(self._cuda.device_buffer(nbytes)))

    def _pinned(self, nbytes: int) -> PinnedBuffer:
        return self._memory.enter_context(closing(self._cuda.pinned_buffer(nbytes)))


def host_array(buffer: PinnedBuffer, part: Part) -> NDArray[Any]:
    """A part of page-locked memory; valid as long as the buffer."""
    return host_part(buffer, part).array(part.shape, part.dtype)


def host_part(buffer: PinnedBuffer, part: Part) -> PinnedBuffer:
    """A part of page-locked memory; not to be closed."""
    return PinnedBuffer(buffer.cuda, buffer.address + part.offset, part.nbytes)


def device_part(buffer: DeviceBuffer, part: Part) -> DeviceBuffer:
    """A part of device memory; not to be closed."""
    return DeviceBuffer(buffer.cuda, buffer.address + part.offset, part.nbytes)
