"""Batches on an NVIDIA GPU, overlapped: while one computes, the next is uploaded and the last is downloaded.

Three CUDA streams: copy in and convert; engine; convert and copy out. Only the engine's stream touches the engine's
memory, so that two batches never mix there: docs/adr/0006-gpu-streams.md. Pixels cross the bus as uint8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from engines.base import BatchShape, Engine
from engines.cuda.api import Cuda, Stream, open_cuda
from engines.errors import EngineFailed, EngineOutOfMemory
from engines.manifest import Manifest
from engines.tensors import tensor_shape
from service.core.batch_rows import Sample
from service.devices.contract import Device, Ticket, Tile, Tiles
from service.devices.gpu_buffers import BatchBuffers, host_array
from service.devices.gpu_cvcuda import GpuPixels, load_cvcuda
from service.devices.gpu_layout import BatchLayout, batch_shape_of, lay_out_batch, padded_batch_size
from service.devices.gpu_stages import FINITE_CODES, GpuStages
from service.telemetry.profiler_ranges import stage_range


@runtime_checkable
class StreamEngine(Protocol):
    """An engine that runs on a CUDA stream, with its inputs and output in its own device memory."""

    manifest: Manifest
    max_shape: BatchShape
    """The largest batch that its memory holds."""
    max_rows: int
    """The largest number of rows to send to it in one batch, with one result each; its memory may hold more."""

    @property
    def addresses(self) -> Mapping[str, int]:
        """Device address of every input and of `output`, by name; dense, with the manifest's dtypes."""

    def enqueue(self, shape: BatchShape, stream: Stream) -> None:
        """Start one batch. Raises EngineFailed, EngineOutOfMemory, EngineDead."""


@dataclass(frozen=True, slots=True, eq=False)
class GpuTicket:
    """A batch on the GPU, and the buffers that hold it."""

    buffers: BatchBuffers
    layout: BatchLayout
    rows: int
    """Samples in the batch; the layout may have more rows, which are padding."""
    into: tuple[Tile, ...] = ()
    """Page-locked arrays that the GPU writes the tiles to; empty where they come back in the buffers."""

    @property
    def share(self) -> float:
        return 1.0

    @property
    def done(self) -> bool:
        return self.buffers.done.passed()


class GpuDevice(Device):
    """One GPU with buffers for `depth` overlapping batches; created and used by one thread.

    Args:
        cuda: the GPU.
        pixels: conversions of pixels on that GPU.
        depth: batches that may be launched and not yet collected.

    Raises:
        EngineOutOfMemory: there is not enough memory even for streams and events.
    """

    def __init__(self, cuda: Cuda, pixels: GpuPixels, depth: int = 3) -> None:
        cuda.make_current()
        self.depth = depth
        self.busy_s = 0.0
        """Seconds that engines have computed in total, measured by the GPU."""
        self._pixels = pixels
        self._resources = ExitStack()
        incoming, computing, outgoing = (self._resources.enter_context(closing(cuda.stream())) for _ in range(3))
        self._streams = (incoming, computing, outgoing)
        self._stages = GpuStages(cuda, pixels, incoming, computing, outgoing)
        self._buffers = [self._resources.enter_context(closing(BatchBuffers(cuda))) for _ in range(depth)]
        self._free = list(self._buffers)

    def batch_rows(self, engine: Engine, first: Sample, max_rows: int, waiting: int) -> int:
        del engine, first, waiting
        return max_rows if self._free else 0

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> GpuTicket:
        assert isinstance(engine, StreamEngine)  # noqa: S101 -- checked by `PerEngineDevice`
        shape = batch_shape_of(samples)
        layout = lay_out_batch(engine.manifest, padded_batch_size(shape, max(1, engine.max_rows // shape.samples)))
        _require_fit(engine, layout.shape)
        if not self._free:
            raise EngineFailed(f"all {self.depth} slots are in use; collect a batch first")
        buffers = self._free.pop(0)
        try:
            self._reserve_buffers(buffers, engine, layout)
            about = f"{engine.manifest.key} ×{len(samples)}"
            with stage_range("preprocess", about):
                self._stages.upload(buffers, layout, samples)
            with stage_range("infer", about):
                self._stages.compute(
                    buffers, layout, engine.addresses, lambda stream: engine.enqueue(layout.shape, stream)
                )
            with stage_range("postprocess", about):
                into = _page_locked_targets(samples)
                self._stages.download(buffers, layout, into)
        except BaseException:
            self._free.append(buffers)
            self._synchronise()
            raise
        return GpuTicket(buffers, layout, len(samples), into)

    def collect(self, ticket: Ticket) -> Tiles:
        assert isinstance(ticket, GpuTicket)  # noqa: S101 -- made by `launch`
        buffers = ticket.buffers
        try:
            buffers.done.synchronise()
            self.busy_s += buffers.engine_finished.seconds_since(buffers.engine_started)
            return _read_tiles(buffers, ticket)
        finally:
            self._free.append(buffers)

    def close(self) -> None:
        """Wait for the batches that were launched, then free buffers and streams."""
        try:
            self._synchronise()
        finally:
            self._resources.close()

    def _reserve_buffers(self, buffers: BatchBuffers, engine: StreamEngine, layout: BatchLayout) -> None:
        """Allocate for the engine's largest batch, so that buffers grow only once; if that fails, for this batch."""
        try:
            buffers.reserve(layout.sizes.grown_to(lay_out_batch(engine.manifest, engine.max_shape).sizes))
        except EngineOutOfMemory:
            buffers.reserve(layout.sizes)

    def _synchronise(self) -> None:
        """Wait for all work on the streams. Raises EngineDead: the CUDA context is lost."""
        for stream in self._streams:
            stream.synchronise()


def open_gpu_device(engine: Engine, depth: int = 3, open_cuda: Callable[[int], Cuda] = open_cuda) -> GpuDevice | None:
    """Open the device that overlaps `depth` batches of an engine; None for an engine that uses no CUDA stream.

    Raises:
        EngineUnavailable: CV-CUDA or the GPU is missing.
    """
    if not isinstance(engine, StreamEngine):
        return None
    index = int(engine.device.partition(":")[2] or 0)
    return GpuDevice(open_cuda(index), GpuPixels(load_cvcuda()), depth)


def _require_fit(engine: StreamEngine, shape: BatchShape) -> None:
    """Raise EngineFailed if a tensor of this batch is larger than the engine's memory for it."""
    for spec in (*engine.manifest.inputs, engine.manifest.output):
        needed, held = (int(np.prod(tensor_shape(spec, size))) for size in (shape, engine.max_shape))
        if needed > held:
            raise EngineFailed(
                f"{engine.manifest.key}: a batch of {shape.batch} tiles of {shape.width}×{shape.height}; the engine's "
                f"memory holds {engine.max_shape.batch} of {engine.max_shape.width}×{engine.max_shape.height}"
            )


def _page_locked_targets(samples: Sequence[Sample]) -> tuple[Tile, ...]:
    """The samples' own page-locked arrays, which the GPU can write tiles to; empty unless every sample has one."""
    targets = tuple(sample.into for sample in samples if sample.locked and sample.into is not None)
    return targets if len(targets) == len(samples) else ()


def _read_tiles(buffers: BatchBuffers, ticket: GpuTicket) -> Tiles:
    """The tiles of a finished batch; those in the buffers are copied, because the next batch overwrites them."""
    layout, rows = ticket.layout, ticket.rows
    tiles = ticket.into or host_array(buffers.host_returned, layout.tiles)[:rows].copy()
    counts = host_array(buffers.host_returned, layout.counts)
    values = layout.finite_codes.nbytes // layout.rows
    finite = (counts[:, FINITE_CODES].sum(axis=1) == values).reshape(layout.tiles.shape[0], -1).all(axis=1)[:rows]
    return [tile if good else None for tile, good in zip(tiles, finite, strict=True)]
