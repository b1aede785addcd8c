"""The three stages of a batch on a GPU. Each starts work on its stream and returns at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.cuda.api import Cuda, DeviceBuffer, PinnedBuffer, Stream
from service.core.samples import Sample
from service.devices.contract import Tile
from service.devices.gpu_buffers import Slot, device_part, host_array, host_part
from service.devices.gpu_cvcuda import GpuPixels, View
from service.devices.gpu_layout import BINS, BatchLayout
from service.devices.memory_layout import Part

_VERDICT_SCALE, _VERDICT_OFFSET = 1e-37, 100.0
FINITE = slice(66, 135)
"""Verdicts of finite values: |x| ≤ 3.4e38 becomes 66…134, infinity 0 or 255, NaN 0 (or 255, as one saturates)."""


@dataclass(frozen=True, slots=True)
class GpuStages:
    """The stages and their streams."""

    cuda: Cuda
    pixels: GpuPixels
    incoming: Stream
    computing: Stream
    outgoing: Stream

    def bring_in(self, slot: Slot, layout: BatchLayout, samples: Sequence[Sample]) -> None:
        """Copy the samples to the device; pictures become floats in the slot's own memory.

        Rows that only pad the batch repeat the last sample: whatever lies there otherwise may be no class id.
        """
        padded_rows = [*samples, *[samples[-1]] * (layout.shape.batch - len(samples))]
        if all(sample.locked for sample in samples):
            self._copy_rows_in(slot, layout, padded_rows)
        else:
            for part in layout.staged:
                rows = host_array(slot.host_staged, part)
                for row, sample in zip(rows, padded_rows, strict=True):
                    array = sample.arrays[part.name]
                    np.copyto(row.reshape(array.shape), array, casting="same_kind")
            self.cuda.copy_in(slot.device_staged, slot.host_staged, layout.sizes.staged, self.incoming)
        if layout.floats is not None:
            image = next(part for part in layout.staged if part.name == "image")
            source, target = _view(slot.device_staged, image), _view(slot.device_scratch, layout.floats)
            self.pixels.convert(target, source, self.incoming, scale=1 / 255)
        slot.staged.record(self.incoming)

    def compute(
        self,
        slot: Slot,
        layout: BatchLayout,
        addresses: Mapping[str, int],
        enqueue: Callable[[Stream], None],
    ) -> None:
        """Fill the engine's memory, run it, and take the output out of its memory."""
        self.computing.wait_for(slot.staged)
        for part in layout.staged:
            self._feed(slot, layout, part, addresses[part.name])
        slot.begun.record(self.computing)
        enqueue(self.computing)
        slot.computed.record(self.computing)
        rows, channels, height, width = layout.verdicts.shape
        flat = (rows * channels, height, width, 1)
        output = View(addresses["output"], flat, "float32")
        bytes_of_output = (
            View(slot.device_returned.address + layout.tiles.offset, flat, "uint8")
            if layout.planes is None
            else View(slot.device_scratch.address + layout.planes.offset, flat, "uint8")
        )
        self.pixels.convert(bytes_of_output, output, self.computing, scale=255.0)
        verdicts = View(slot.device_scratch.address + layout.verdicts.offset, flat, "uint8")
        self.pixels.convert(verdicts, output, self.computing, scale=_VERDICT_SCALE, offset=_VERDICT_OFFSET)
        slot.converted.record(self.computing)

    def bring_out(self, slot: Slot, layout: BatchLayout, into: Sequence[Tile] = ()) -> None:
        """Put the channels last, count the verdicts, and copy both to the host.

        Args:
            slot: with the batch.
            layout: of it.
            into: page-locked memory for the tile of each row; where there is none, the slot's.
        """
        self.outgoing.wait_for(slot.converted)
        rows, channels, height, width = layout.verdicts.shape
        if layout.planes is not None:
            tiles = View(slot.device_returned.address + layout.tiles.offset, (rows, height, width, channels), "uint8")
            self.pixels.reformat(tiles, _view(slot.device_scratch, layout.planes, "NCHW"), self.outgoing)
        counts = device_part(slot.device_returned, layout.counts)
        # CV-CUDA 0.15 clears a quarter of the histogram only
        self.cuda.clear(counts, layout.counts.nbytes, self.outgoing)
        verdicts = View(
            slot.device_scratch.address + layout.verdicts.offset, (rows, channels * height, width, 1), "uint8"
        )
        self.pixels.count(View(counts.address, (rows, BINS, 1), "int32", "HWC"), verdicts, self.outgoing)
        if into:
            tile_bytes = layout.tiles.nbytes // layout.tiles.shape[0]
            for number, tile in enumerate(into):
                row = _row(slot.device_returned, layout.tiles.offset, number, tile_bytes)
                self.cuda.copy_out(_locked(self.cuda, tile), row, tile_bytes, self.outgoing)
            self.cuda.copy_out(
                host_part(slot.host_returned, layout.counts), counts, layout.counts.nbytes, self.outgoing
            )
        else:
            self.cuda.copy_out(slot.host_returned, slot.device_returned, layout.sizes.returned, self.outgoing)
        slot.done.record(self.outgoing)

    def _copy_rows_in(self, slot: Slot, layout: BatchLayout, samples: Sequence[Sample]) -> None:
        """From where each sample lies, without the processor."""
        for part in layout.staged:
            row_bytes = part.nbytes // part.shape[0]
            for number, sample in enumerate(samples):
                row = _row(slot.device_staged, part.offset, number, row_bytes)
                self.cuda.copy_in(row, _locked(self.cuda, sample.arrays[part.name]), row_bytes, self.incoming)

    def _feed(self, slot: Slot, layout: BatchLayout, part: Part, address: int) -> None:
        """One input into the engine's memory."""
        batch, height, width, _ = layout.shape
        if part.name == "image" and layout.floats is not None:
            channels = part.shape[-1]
            target = View(address, (batch, channels, height, width), "float32", "NCHW")
            self.pixels.reformat(target, _view(slot.device_scratch, layout.floats), self.computing)
        elif part.name in {"image", "mask"}:
            flat = (batch, height, width, 1)
            source = View(slot.device_staged.address + part.offset, flat, "uint8")
            scale = 1 / 255 if part.name == "image" else 1.0
            self.pixels.convert(View(address, flat, "float32"), source, self.computing, scale=scale)
        else:
            target_memory = DeviceBuffer(self.cuda, address, part.nbytes)
            self.cuda.copy_within(target_memory, device_part(slot.device_staged, part), part.nbytes, self.computing)


def _row(buffer: DeviceBuffer, offset: int, number: int, nbytes: int) -> DeviceBuffer:
    """A row of a part of device memory; not to be closed."""
    return DeviceBuffer(buffer.cuda, buffer.address + offset + number * nbytes, nbytes)


def _locked(cuda: Cuda, array: NDArray[Any]) -> PinnedBuffer:
    """A dense array in memory that is page-locked already; not to be closed."""
    return PinnedBuffer(cuda, int(array.__array_interface__["data"][0]), array.nbytes)


def _view(buffer: DeviceBuffer, part: Part, layout: str = "NHWC") -> View:
    return View(buffer.address + part.offset, part.shape, part.dtype, layout)
