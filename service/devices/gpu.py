"""Batches on an NVIDIA GPU, overlapped: while one computes, the next comes in and the last goes out.

Three streams: copy in and convert; engine; convert and copy out. What touches the engine's own memory runs on the
engine's stream, so that no other batch can be in it: docs/adr/0006-gpu-streams.md. Pixels cross the bus as uint8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from engines.base import BatchShape, Engine
from engines.cuda.api import Cuda, Stream, open_cuda
from engines.errors import EngineFailed, EngineOutOfMemory
from engines.manifest import Manifest
from engines.tensors import tensor_shape
from service.core.samples import Sample
from service.devices.contract import Device, Ticket, Tile, Tiles
from service.devices.gpu_buffers import Slot, host_array
from service.devices.gpu_cvcuda import GpuPixels, load_cvcuda
from service.devices.gpu_layout import BatchLayout, batch_shape_of, lay_out, padded
from service.devices.gpu_stages import FINITE, GpuStages
from service.telemetry.profiler_ranges import stage_range


@runtime_checkable
class StreamEngine(Protocol):
    """An engine that computes on a stream what lies in its device memory."""

    manifest: Manifest
    most: BatchShape
    """The largest batch that its memory holds."""
    most_rows: int
    """Of a batch that is sent to it, where each has one sample; the memory may hold more."""

    @property
    def addresses(self) -> Mapping[str, int]:
        """Device memory of every input and of `output`, in the tensor contract's types, dense."""

    def enqueue(self, shape: BatchShape, stream: Stream) -> None:
        """Start one batch. Raises EngineFailed, EngineOutOfMemory, EngineDead."""


@dataclass(frozen=True, slots=True, eq=False)
class GpuTicket:
    """A batch in a slot."""

    slot: Slot
    layout: BatchLayout
    rows: int
    """Of the batch; the layout may have more."""
    into: tuple[Tile, ...] = ()
    """Where the tiles are written; empty where they come back in the slot."""

    @property
    def share(self) -> float:
        return 1.0

    @property
    def done(self) -> bool:
        return self.slot.done.passed()


class GpuDevice(Device):
    """A ring of slots round one GPU, used by one thread, which also makes it.

    Args:
        cuda: the device.
        pixels: its arithmetic.
        depth: batches that may be on their way at once.

    Raises:
        EngineOutOfMemory: not even streams and events could be made.
    """

    def __init__(self, cuda: Cuda, pixels: GpuPixels, depth: int = 3) -> None:
        cuda.use()
        self.depth = depth
        self.busy_s = 0.0
        """Time that engines computed, by the GPU's own clock."""
        self._pixels = pixels
        self._resources = ExitStack()
        incoming, computing, outgoing = (self._resources.enter_context(closing(cuda.stream())) for _ in range(3))
        self._streams = (incoming, computing, outgoing)
        self._stages = GpuStages(cuda, pixels, incoming, computing, outgoing)
        self._slots = [self._resources.enter_context(closing(Slot(cuda))) for _ in range(depth)]
        self._free = list(self._slots)

    def rows(self, engine: Engine, first: Sample, most: int, waiting: int) -> int:
        del engine, first, waiting
        return most if self._free else 0

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> GpuTicket:
        assert isinstance(engine, StreamEngine)  # noqa: S101 -- whoever routes batches has looked
        shape = batch_shape_of(samples)
        layout = lay_out(engine.manifest, padded(shape, max(1, engine.most_rows // shape.samples)))
        _require_fit(engine, layout.shape)
        if not self._free:
            raise EngineFailed(f"all {self.depth} slots are on their way; collect one first")
        slot = self._free.pop(0)
        try:
            self._reserve(slot, engine, layout)
            about = f"{engine.manifest.key} ×{len(samples)}"
            with stage_range("preprocess", about):
                self._stages.bring_in(slot, layout, samples)
            with stage_range("infer", about):
                self._stages.compute(
                    slot, layout, engine.addresses, lambda stream: engine.enqueue(layout.shape, stream)
                )
            with stage_range("postprocess", about):
                into = _wanted_places(samples)
                self._stages.bring_out(slot, layout, into)
        except BaseException:
            self._free.append(slot)
            self._settle()
            raise
        return GpuTicket(slot, layout, len(samples), into)

    def collect(self, ticket: Ticket) -> Tiles:
        assert isinstance(ticket, GpuTicket)  # noqa: S101 -- the device's own
        slot = ticket.slot
        try:
            slot.done.synchronise()
            self.busy_s += slot.computed.seconds_since(slot.begun)
            return _tiles(slot, ticket)
        finally:
            self._free.append(slot)

    def close(self) -> None:
        """Free the slots and streams; what was launched is waited for."""
        try:
            self._settle()
        finally:
            self._resources.close()

    def _reserve(self, slot: Slot, engine: StreamEngine, layout: BatchLayout) -> None:
        """Room for the largest batch of this engine, so that memory stops growing early; at least for this one."""
        try:
            slot.reserve(layout.sizes.grown_to(lay_out(engine.manifest, engine.most).sizes))
        except EngineOutOfMemory:
            slot.reserve(layout.sizes)

    def _settle(self) -> None:
        """Wait for what has been started. Raises EngineDead: the context is lost."""
        for stream in self._streams:
            stream.synchronise()


def open_gpu_device(engine: Engine, depth: int = 3) -> GpuDevice | None:
    """The device that overlaps `depth` batches of an engine; None for an engine that does not compute on a stream.

    Raises:
        EngineUnavailable: CV-CUDA or the GPU is missing.
    """
    if not isinstance(engine, StreamEngine):
        return None
    index = int(engine.device.partition(":")[2] or 0)
    return GpuDevice(open_cuda(index), GpuPixels(load_cvcuda()), depth)


def _require_fit(engine: StreamEngine, shape: BatchShape) -> None:
    """Raises EngineFailed: a tensor of this batch is larger than the engine's memory for it."""
    for spec in (*engine.manifest.inputs, engine.manifest.output):
        wanted, most = (int(np.prod(tensor_shape(spec, size))) for size in (shape, engine.most))
        if wanted > most:
            raise EngineFailed(
                f"{engine.manifest.key}: a batch of {shape.batch} tiles of {shape.width}×{shape.height}; the engine's "
                f"memory holds {engine.most.batch} of {engine.most.width}×{engine.most.height}"
            )


def _wanted_places(samples: Sequence[Sample]) -> tuple[Tile, ...]:
    """Where the GPU can write the tiles of all samples by itself; empty where it cannot."""
    places = tuple(sample.into for sample in samples if sample.locked and sample.into is not None)
    return places if len(places) == len(samples) else ()


def _tiles(slot: Slot, ticket: GpuTicket) -> Tiles:
    """Where they were wanted; else copied from the slot, because the next batch overwrites it."""
    layout, rows = ticket.layout, ticket.rows
    tiles = ticket.into or host_array(slot.host_returned, layout.tiles)[:rows].copy()
    counts = host_array(slot.host_returned, layout.counts)
    values = layout.verdicts.nbytes // layout.rows
    finite = (counts[:, FINITE].sum(axis=1) == values).reshape(layout.tiles.shape[0], -1).all(axis=1)[:rows]
    return [tile if good else None for tile, good in zip(tiles, finite, strict=True)]
