"""Slots: shared memory between a front end and an engine process, one slot for a sample and its tile.

Each connection has its own arena. The front end creates it and allocates slots in it; the engine process maps it. The
memory has no name (memfd_create(2)), so the kernel frees it when its last process ends. A slot is reused only after the
engine process has answered. When a connection breaks, its arena is abandoned and the next connection gets a new one, so
late writes of a dying process are never read.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import threading
from bisect import insort
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.base import BatchShape
from engines.manifest import Manifest
from engines.tensors import tensor_shape
from service.core.batch_rows import Sample
from service.core.errors import ServiceError
from service.core.pictures import Size
from service.devices.memory_layout import ArrayRegion, LayoutBuilder

PAGE = 4096
"""Size of a memory page in bytes; slots are allocated in whole pages."""


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Layout of a slot: the arrays of one sample, and its tile."""

    inputs: tuple[ArrayRegion, ...]
    output: ArrayRegion
    nbytes: int


class SlotLayouts:
    """The slot layouts of one model, which front end and engine process both compute from its manifest."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self.of = lru_cache(maxsize=256)(self._lay_out)
        """Returns the layout for a tile's height and width in pixels, and a number of results."""

    def _lay_out(self, height: int, width: int, samples: int) -> SlotLayout:
        placing, inputs = LayoutBuilder(), []
        shape = BatchShape(1, height, width, samples)
        for spec in self._manifest.inputs:
            if spec.name == "image":
                inputs.append(placing.add("image", (height, width, self._manifest.image_channels), "uint8"))
            elif spec.name in {"latent", "reference"}:
                inputs.append(placing.add(spec.name, tensor_shape(spec, shape)[1:], "float32"))
            else:
                dtype = "uint8" if spec.name == "mask" else spec.dtype
                inputs.append(placing.add(spec.name, (height, width), dtype))
        *leading, channels, out_height, out_width = tensor_shape(self._manifest.output, shape)[1:]
        output = placing.add("output", (*leading, out_height, out_width, channels), "uint8")
        return SlotLayout(tuple(inputs), output, -(-placing.size // PAGE) * PAGE)


class FreeList:
    """The free parts of an arena, allocated first fit. Pure."""

    def __init__(self, nbytes: int) -> None:
        self._free = [(0, nbytes)]
        """Start and end of each free part in bytes, ascending; no two parts are adjacent."""

    @property
    def nbytes(self) -> int:
        """Free bytes in total."""
        return sum(end - start for start, end in self._free)

    def allocate(self, nbytes: int) -> int | None:
        """Allocate at the lowest possible offset, and return it; None if no free part is large enough."""
        for index, (start, end) in enumerate(self._free):
            if end - start >= nbytes:
                if end - start == nbytes:
                    del self._free[index]
                else:
                    self._free[index] = (start + nbytes, end)
                return start
        return None

    def free(self, start: int, nbytes: int) -> None:
        """Free an allocation, and merge it with free neighbours."""
        hole = (start, start + nbytes)
        insort(self._free, hole)
        index = self._free.index(hole)
        if index + 1 < len(self._free) and self._free[index + 1][0] == hole[1]:
            hole = (hole[0], self._free.pop(index + 1)[1])
            self._free[index] = hole
        if index and self._free[index - 1][1] == hole[0]:
            self._free[index - 1 : index + 1] = [(self._free[index - 1][0], hole[1])]


class Slot:
    """An allocated part of an arena; freed when neither the slot nor an array in it is referenced."""

    __slots__ = ("_arena", "nbytes", "offset")

    def __init__(self, arena: Arena, offset: int, nbytes: int) -> None:
        self._arena = arena
        self.offset = offset
        self.nbytes = nbytes

    def __del__(self) -> None:
        self._arena.free_later(self.offset, self.nbytes)

    def write(self, layout: SlotLayout, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Copy a sample into the slot."""
        for part in layout.inputs:
            np.copyto(self._arena.memory.array(self.offset, part), arrays[part.name], casting="same_kind")

    def read(self, part: ArrayRegion) -> NDArray[np.uint8]:
        """Return an array in the slot, not a copy; the slot stays allocated while the array or a view of it exists."""
        array: NDArray[np.uint8] = np.asarray(_SlotView(self, self._arena.memory.array(self.offset, part)))
        return array


class _SlotView:
    """Owner of an array's memory that keeps the slot alive, through NumPy's array interface."""

    def __init__(self, slot: Slot, array: NDArray[Any]) -> None:
        self._slot = slot
        self.__array_interface__ = array.__array_interface__


class Memory:
    """Mapped shared memory.

    Args:
        descriptor: descriptor of a memfd; it may be closed afterwards.
        nbytes: size of the memory.
    """

    def __init__(self, descriptor: int, nbytes: int) -> None:
        self._map = mmap.mmap(descriptor, nbytes)
        self.nbytes = nbytes

    @property
    def address(self) -> int:
        """Address of the memory in this process."""
        return int(np.frombuffer(self._map, np.uint8).__array_interface__["data"][0])

    def array(self, offset: int, part: ArrayRegion) -> NDArray[Any]:
        """Return an array in the slot at `offset`; the memory stays mapped while the array or a view of it exists."""
        array: NDArray[Any] = np.ndarray(part.shape, part.dtype, self._map, offset + part.offset)
        return array

    def sample(self, offset: int, layout: SlotLayout, size: tuple[int, int, int], *, locked: bool) -> Sample:
        """Return the sample in a slot without a copy; its tile will be written to the same slot.

        Args:
            offset: offset of the slot, in bytes.
            layout: layout of the slot.
            size: height, width and number of results.
            locked: whether the memory is page-locked.

        Raises:
            ValueError: the slot is outside this memory.
        """
        if not 0 <= offset <= self.nbytes - layout.nbytes:
            raise ValueError(f"a slot of {layout.nbytes} bytes at {offset} is not within {self.nbytes} bytes")
        height, width, samples = size
        arrays = {part.name: self.array(offset, part) for part in layout.inputs}
        return Sample(Size(height, width), arrays, samples, self.array(offset, layout.output), locked)


class Arena:
    """The front end's side of the memory, which allocates slots in the order of the calls.

    Used on the event loop, except that the last reference to a slot may be dropped on any thread.

    Args:
        nbytes: size of the memory; pages that were never written take none.
    """

    def __init__(self, nbytes: int) -> None:
        self.descriptor = os.memfd_create("retouch-slots")
        """Descriptor for the engine process; close it with `close_descriptor`."""
        os.ftruncate(self.descriptor, nbytes)
        self.memory = Memory(self.descriptor, nbytes)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._free = FreeList(nbytes)
        self._waiting: deque[tuple[int, asyncio.Future[Slot]]] = deque()

    @property
    def free_bytes(self) -> int:
        """Bytes that no slot uses."""
        return self._free.nbytes

    @property
    def has_waiting(self) -> bool:
        """Whether a sample waits for a slot."""
        return bool(self._waiting)

    def close_descriptor(self) -> None:
        """Close the descriptor, after the engine process has received its own."""
        os.close(self.descriptor)

    async def allocate(self, nbytes: int) -> Slot:
        """Allocate a slot, waiting until enough memory is free.

        Raises:
            ServiceError: the slot is larger than the whole arena.
        """
        if nbytes > self.memory.nbytes:
            raise ServiceError(
                f"a tile of {nbytes / 2**20:.1f} MiB does not fit into {self.memory.nbytes / 2**20:.0f} MiB of slots; "
                "the model's tiles are too large for --workers"
            )
        if not self._waiting and (slot := self._allocate(nbytes)) is not None:
            return slot
        waiter: asyncio.Future[Slot] = self._loop.create_future()
        self._waiting.append((nbytes, waiter))
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter in [other for _, other in self._waiting]:
                self._waiting.remove((nbytes, waiter))
                self._serve_waiting()
            raise

    def free_later(self, offset: int, nbytes: int) -> None:
        """Schedule the freeing of a slot; called when its last reference is dropped, on any thread."""
        later = self._loop.call_soon if threading.get_ident() == self._thread else self._loop.call_soon_threadsafe
        if not self._loop.is_closed():
            later(self._free_slot, offset, nbytes)

    def _free_slot(self, offset: int, nbytes: int) -> None:
        self._free.free(offset, nbytes)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._waiting and (slot := self._allocate(self._waiting[0][0])) is not None:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(slot)

    def _allocate(self, nbytes: int) -> Slot | None:
        offset = self._free.allocate(nbytes)
        return None if offset is None else Slot(self, offset, nbytes)
