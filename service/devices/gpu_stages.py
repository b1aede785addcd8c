"""The three stages of a batch on a GPU: upload, compute, download. Each enqueues work on its stream and returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.cuda.api import Cuda, DeviceBuffer, PinnedBuffer, Stream
from service.core.batch_rows import Sample
from service.devices.contract import Tile
from service.devices.gpu_buffers import BatchBuffers, device_region, host_array, host_region
from service.devices.gpu_cvcuda import GpuPixels, TensorView
from service.devices.gpu_layout import BINS, BatchLayout
from service.devices.memory_layout import ArrayRegion

_CODE_SCALE, _CODE_OFFSET = 1e-37, 100.0
FINITE_CODES = slice(66, 135)
"""Codes of finite values: |x| ≤ 3.4e38 becomes 66…134, infinity 0 or 255, NaN 0 or 255 (CV-CUDA saturates)."""


@dataclass(frozen=True, slots=True)
class GpuStages:
    """The stages of a batch, each with its CUDA stream."""

    cuda: Cuda
    pixels: GpuPixels
    incoming: Stream
    computing: Stream
    outgoing: Stream

    def upload(self, buffers: BatchBuffers, layout: BatchLayout, samples: Sequence[Sample]) -> None:
        """Copy the samples to the device and convert pictures to floats.

        Padding rows repeat the last sample, because leftover memory might hold class ids that the model does not have.
        """
        padded_rows = [*samples, *[samples[-1]] * (layout.shape.batch - len(samples))]
        if all(sample.locked for sample in samples):
            self._copy_rows_in(buffers, layout, padded_rows)
        else:
            for part in layout.staged:
                rows = host_array(buffers.host_staged, part)
                for row, sample in zip(rows, padded_rows, strict=True):
                    array = sample.arrays[part.name]
                    np.copyto(row.reshape(array.shape), array, casting="same_kind")
            self.cuda.copy_in(buffers.device_staged, buffers.host_staged, layout.sizes.staged, self.incoming)
        if layout.floats is not None:
            image = next(part for part in layout.staged if part.name == "image")
            source, target = (
                _tensor_view(buffers.device_staged, image),
                _tensor_view(buffers.device_scratch, layout.floats),
            )
            self.pixels.convert(target, source, self.incoming, scale=1 / 255)
        buffers.staged.record(self.incoming)

    def compute(
        self,
        buffers: BatchBuffers,
        layout: BatchLayout,
        addresses: Mapping[str, int],
        enqueue: Callable[[Stream], None],
    ) -> None:
        """Copy the batch to the engine's inputs, run the engine, and convert its output to uint8 and finite codes."""
        self.computing.wait_for(buffers.staged)
        for part in layout.staged:
            self._fill_input(buffers, layout, part, addresses[part.name])
        buffers.engine_started.record(self.computing)
        enqueue(self.computing)
        buffers.engine_finished.record(self.computing)
        rows, channels, height, width = layout.finite_codes.shape
        flat = (rows * channels, height, width, 1)
        output = TensorView(addresses["output"], flat, "float32")
        bytes_of_output = (
            TensorView(buffers.device_returned.address + layout.tiles.offset, flat, "uint8")
            if layout.planes is None
            else TensorView(buffers.device_scratch.address + layout.planes.offset, flat, "uint8")
        )
        self.pixels.convert(bytes_of_output, output, self.computing, scale=255.0)
        finite_codes = TensorView(buffers.device_scratch.address + layout.finite_codes.offset, flat, "uint8")
        self.pixels.convert(finite_codes, output, self.computing, scale=_CODE_SCALE, offset=_CODE_OFFSET)
        buffers.converted.record(self.computing)

    def download(self, buffers: BatchBuffers, layout: BatchLayout, into: Sequence[Tile] = ()) -> None:
        """Move the channels last, count the finite codes, and copy both to the host.

        Args:
            buffers: hold the batch.
            layout: the batch's.
            into: a page-locked array for the tile of each row; empty to use the buffers.
        """
        self.outgoing.wait_for(buffers.converted)
        rows, channels, height, width = layout.finite_codes.shape
        if layout.planes is not None:
            tiles = TensorView(
                buffers.device_returned.address + layout.tiles.offset, (rows, height, width, channels), "uint8"
            )
            self.pixels.reformat(tiles, _tensor_view(buffers.device_scratch, layout.planes, "NCHW"), self.outgoing)
        counts = device_region(buffers.device_returned, layout.counts)
        # CV-CUDA 0.15 clears only a quarter of the histogram
        self.cuda.clear(counts, layout.counts.nbytes, self.outgoing)
        finite_codes = TensorView(
            buffers.device_scratch.address + layout.finite_codes.offset, (rows, channels * height, width, 1), "uint8"
        )
        self.pixels.histogram(TensorView(counts.address, (rows, BINS, 1), "int32", "HWC"), finite_codes, self.outgoing)
        if into:
            tile_bytes = layout.tiles.nbytes // layout.tiles.shape[0]
            for number, tile in enumerate(into):
                row = _row_memory(buffers.device_returned, layout.tiles.offset, number, tile_bytes)
                self.cuda.copy_out(_page_locked_view(self.cuda, tile), row, tile_bytes, self.outgoing)
            self.cuda.copy_out(
                host_region(buffers.host_returned, layout.counts), counts, layout.counts.nbytes, self.outgoing
            )
        else:
            self.cuda.copy_out(buffers.host_returned, buffers.device_returned, layout.sizes.returned, self.outgoing)
        buffers.done.record(self.outgoing)

    def _copy_rows_in(self, buffers: BatchBuffers, layout: BatchLayout, samples: Sequence[Sample]) -> None:
        """Upload each sample from its own page-locked memory, without a copy by the CPU."""
        for part in layout.staged:
            row_bytes = part.nbytes // part.shape[0]
            for number, sample in enumerate(samples):
                row = _row_memory(buffers.device_staged, part.offset, number, row_bytes)
                self.cuda.copy_in(row, _page_locked_view(self.cuda, sample.arrays[part.name]), row_bytes, self.incoming)

    def _fill_input(self, buffers: BatchBuffers, layout: BatchLayout, part: ArrayRegion, address: int) -> None:
        """Convert or copy one uploaded input to the engine's memory."""
        batch, height, width, _ = layout.shape
        if part.name == "image" and layout.floats is not None:
            channels = part.shape[-1]
            target = TensorView(address, (batch, channels, height, width), "float32", "NCHW")
            self.pixels.reformat(target, _tensor_view(buffers.device_scratch, layout.floats), self.computing)
        elif part.name in {"image", "mask"}:
            flat = (batch, height, width, 1)
            source = TensorView(buffers.device_staged.address + part.offset, flat, "uint8")
            scale = 1 / 255 if part.name == "image" else 1.0
            self.pixels.convert(TensorView(address, flat, "float32"), source, self.computing, scale=scale)
        else:
            target_memory = DeviceBuffer(self.cuda, address, part.nbytes)
            self.cuda.copy_within(
                target_memory, device_region(buffers.device_staged, part), part.nbytes, self.computing
            )


def _row_memory(buffer: DeviceBuffer, offset: int, number: int, nbytes: int) -> DeviceBuffer:
    """The device memory of one row of an array; a view that the caller must not close."""
    return DeviceBuffer(buffer.cuda, buffer.address + offset + number * nbytes, nbytes)


def _page_locked_view(cuda: Cuda, array: NDArray[Any]) -> PinnedBuffer:
    """A dense array that is page-locked already; a view that the caller must not close."""
    return PinnedBuffer(cuda, int(array.__array_interface__["data"][0]), array.nbytes)


def _tensor_view(buffer: DeviceBuffer, part: ArrayRegion, layout: str = "NHWC") -> TensorView:
    return TensorView(buffer.address + part.offset, part.shape, part.dtype, layout)
