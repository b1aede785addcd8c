"""Device memory that pictures use again and again, because allocating and freeing it makes the whole GPU wait."""

from __future__ import annotations

from engines.cuda.api import Cuda, DeviceBuffer
from engines.errors import EngineOutOfMemory

_STEP = 1 << 20
"""Bytes; sizes are rounded up to multiples, so that pictures of about one size share memory."""


KEPT_BYTES = 128 * _STEP
"""How much unused memory of pictures a lane keeps: that of all its places for pictures of 512²."""


class GrowingBuffer:
    """Scratch memory of one stream; it grows to the largest need so far.

    Args:
        cuda: the GPU.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._buffer = DeviceBuffer(cuda, 0, 0)

    @property
    def address(self) -> int:
        return self._buffer.address

    def reserve(self, nbytes: int) -> None:
        """Grow to at least so many bytes; no work that uses the memory may be queued.

        Raises:
            EngineOutOfMemory: there is not enough; the memory is empty then.
        """
        if self._buffer.nbytes < nbytes:
            self.close()
            self._buffer = self._cuda.device_buffer(_rounded(nbytes))

    def close(self) -> None:
        """Free the memory; it may grow again."""
        held, self._buffer = self._buffer, DeviceBuffer(self._cuda, 0, 0)
        held.close()


class PictureMemory:
    """Memory of the pictures that are on the GPU at the same time, a buffer for each. Not thread-safe.

    Args:
        cuda: the GPU.
        most: the largest number of pictures.
    """

    def __init__(self, cuda: Cuda, most: int) -> None:
        self._cuda = cuda
        self._unopened = most
        self._free: list[DeviceBuffer] = []

    @property
    def vacant(self) -> int:
        """How many pictures may be added now."""
        return self._unopened + len(self._free)

    def take(self, nbytes: int) -> DeviceBuffer:
        """Take memory of at least so many bytes, which must be given back; there must be a vacant place.

        Raises:
            EngineOutOfMemory: there is not enough.
        """
        fitting = [buffer for buffer in self._free if buffer.nbytes >= nbytes]
        if fitting:
            chosen = min(fitting, key=lambda buffer: buffer.nbytes)
            self._free.remove(chosen)
            return chosen
        if self._unopened:
            self._unopened -= 1
        else:
            self._free.pop().close()
        try:
            return self._allocate(_rounded(nbytes))
        except BaseException:
            self._unopened += 1
            raise

    def give_back(self, buffer: DeviceBuffer) -> None:
        """Give memory back, which no queued work uses any more."""
        self._free.append(buffer)
        if sum(free.nbytes for free in self._free) > KEPT_BYTES:  # a model that is loaded later may need it
            self._free.remove(largest := max(self._free, key=lambda free: free.nbytes))
            self._unopened += 1
            largest.close()

    def _allocate(self, nbytes: int) -> DeviceBuffer:
        try:
            return self._cuda.device_buffer(nbytes)
        except EngineOutOfMemory:
            if not self._free:
                raise
        self.close()  # what is too small for this one
        return self._cuda.device_buffer(nbytes)

    def close(self) -> None:
        """Free the memory that was given back."""
        while self._free:
            self._free.pop().close()
            self._unopened += 1


def _rounded(nbytes: int) -> int:
    return -(-nbytes // _STEP) * _STEP
