"""Slots: memory that a front end and an engine process share, one slot for a sample and its tile.

Each connection has an arena of its own. The front end made it and hands out its slots; the engine process maps it. It
has no name (memfd_create(2)): with its last process it is gone, whatever they died of. A slot is handed out again once
the engine process has answered for it. When the connection breaks, so that no answer will come, the arena is abandoned
and the next connection begins with a fresh one: whatever a process that ends still writes is read by nobody.
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
from service.core.errors import ServiceError
from service.core.items import Sample, Size
from service.devices.memory_layout import ArrayRegion, LayoutBuilder

PAGE = 4096


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Where the arrays of one sample and its tile lie in a slot."""

    inputs: tuple[ArrayRegion, ...]
    output: ArrayRegion
    nbytes: int


class SlotLayouts:
    """The layouts of one model, which both sides work out for themselves."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self.of = lru_cache(maxsize=256)(self._lay_out)
        """Of a sample of that height, width and number of samples."""

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
    """Which parts of an arena are free. Pure."""

    def __init__(self, nbytes: int) -> None:
        self._free = [(0, nbytes)]
        """Start and end, ascending, never adjacent."""

    @property
    def nbytes(self) -> int:
        """All that is free."""
        return sum(end - start for start, end in self._free)

    def take(self, nbytes: int) -> int | None:
        """Where that many bytes are from now on taken, the lowest place; None where no hole is large enough."""
        for index, (start, end) in enumerate(self._free):
            if end - start >= nbytes:
                if end - start == nbytes:
                    del self._free[index]
                else:
                    self._free[index] = (start + nbytes, end)
                return start
        return None

    def give_back(self, start: int, nbytes: int) -> None:
        """Free what was taken."""
        hole = (start, start + nbytes)
        insort(self._free, hole)
        index = self._free.index(hole)
        if index + 1 < len(self._free) and self._free[index + 1][0] == hole[1]:
            hole = (hole[0], self._free.pop(index + 1)[1])
            self._free[index] = hole
        if index and self._free[index - 1][1] == hole[0]:
            self._free[index - 1 : index + 1] = [(self._free[index - 1][0], hole[1])]


class Slot:
    """A part of an arena; it is free again when nobody refers to it or to what it holds."""

    __slots__ = ("_arena", "nbytes", "offset")

    def __init__(self, arena: Arena, offset: int, nbytes: int) -> None:
        self._arena = arena
        self.offset = offset
        self.nbytes = nbytes

    def __del__(self) -> None:
        self._arena.give_back(self.offset, self.nbytes)

    def write(self, layout: SlotLayout, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Copy a sample in."""
        for part in layout.inputs:
            np.copyto(self._arena.memory.array(self.offset, part), arrays[part.name], casting="same_kind")

    def read(self, part: ArrayRegion) -> NDArray[np.uint8]:
        """What lies there, not copied; the slot stays taken as long as the array, or a view of it, is there."""
        array: NDArray[np.uint8] = np.asarray(_Held(self, self._arena.memory.array(self.offset, part)))
        return array


class _Held:
    """What numpy keeps alive for an array made of it."""

    def __init__(self, slot: Slot, array: NDArray[Any]) -> None:
        self._slot = slot
        self.__array_interface__ = array.__array_interface__


class Memory:
    """Shared memory, mapped.

    Args:
        descriptor: of a memfd; it can be closed afterwards.
        nbytes: its size.
    """

    def __init__(self, descriptor: int, nbytes: int) -> None:
        self._map = mmap.mmap(descriptor, nbytes)
        self.nbytes = nbytes

    @property
    def address(self) -> int:
        """Where it begins in this process."""
        return int(np.frombuffer(self._map, np.uint8).__array_interface__["data"][0])

    def array(self, offset: int, part: ArrayRegion) -> NDArray[Any]:
        """A part of a slot; the memory stays mapped as long as it, or a view of it, is there."""
        array: NDArray[Any] = np.ndarray(part.shape, part.dtype, self._map, offset + part.offset)
        return array

    def sample(self, offset: int, layout: SlotLayout, size: tuple[int, int, int], *, locked: bool) -> Sample:
        """A sample that lies in a slot, not copied; its tile is to be written there too.

        Args:
            offset: of the slot.
            layout: of its arrays.
            size: height, width and number of samples.
            locked: whether the memory is page-locked.

        Raises:
            ValueError: the slot does not lie in this memory.
        """
        if not 0 <= offset <= self.nbytes - layout.nbytes:
            raise ValueError(f"a slot of {layout.nbytes} bytes at {offset} is not within {self.nbytes} bytes")
        height, width, samples = size
        arrays = {part.name: self.array(offset, part) for part in layout.inputs}
        return Sample(Size(height, width), arrays, samples, self.array(offset, layout.output), locked)


class Arena:
    """A front end's side of the memory: hands out slots in the order they were asked for.

    Used on the event loop; a slot may be dropped anywhere.

    Args:
        nbytes: its size; memory that was never used costs nothing.
    """

    def __init__(self, nbytes: int) -> None:
        self.descriptor = os.memfd_create("retouch-slots")
        """For the engine process; close it with `hand_over`."""
        os.ftruncate(self.descriptor, nbytes)
        self.memory = Memory(self.descriptor, nbytes)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._free = FreeList(nbytes)
        self._waiting: deque[tuple[int, asyncio.Future[Slot]]] = deque()

    @property
    def free_bytes(self) -> int:
        """What no slot takes."""
        return self._free.nbytes

    @property
    def crowded(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._waiting)

    def hand_over(self) -> None:
        """The engine process has its own descriptor by now."""
        os.close(self.descriptor)

    async def take(self, nbytes: int) -> Slot:
        """A slot, after waiting for room.

        Raises:
            ServiceError: it is larger than the whole arena.
        """
        if nbytes > self.memory.nbytes:
            raise ServiceError(
                f"a tile of {nbytes / 2**20:.1f} MiB does not fit into {self.memory.nbytes / 2**20:.0f} MiB of slots; "
                "raise --slots-mb"
            )
        if not self._waiting and (slot := self._cut(nbytes)) is not None:
            return slot
        turn: asyncio.Future[Slot] = self._loop.create_future()
        self._waiting.append((nbytes, turn))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn in [other for _, other in self._waiting]:
                self._waiting.remove((nbytes, turn))
                self._hand_out()
            raise

    def give_back(self, offset: int, nbytes: int) -> None:
        """A slot is not used any more. Called where the last reference went, on any thread and at any moment."""
        later = self._loop.call_soon if threading.get_ident() == self._thread else self._loop.call_soon_threadsafe
        if not self._loop.is_closed():
            later(self._take_back, offset, nbytes)

    def _take_back(self, offset: int, nbytes: int) -> None:
        self._free.give_back(offset, nbytes)
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and (slot := self._cut(self._waiting[0][0])) is not None:
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(slot)

    def _cut(self, nbytes: int) -> Slot | None:
        offset = self._free.take(nbytes)
        return None if offset is None else Slot(self, offset, nbytes)
