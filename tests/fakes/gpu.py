"""A GPU in host memory that overlaps work as a real one may: streams advance at random, held only by waits and events.

`RacingRuntime` replaces `cuda.bindings.runtime`, `FakeCvCuda` `cvcuda`; both compute with numpy, in stream order, so
that a missing wait or a slot that is reused too early gives a wrong tile.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from engines.base import BatchShape, Engine, Feed, Outputs
from engines.cuda.api import Cuda, DeviceBuffer, Stream
from engines.errors import EngineOutOfMemory
from engines.fake import FakeEngine
from engines.manifest import Manifest
from engines.tensors import tensor_shape
from tests.fakes.cuda import FakeRuntime, Status


class RacingRuntime(FakeRuntime):
    """A fake runtime that, after each piece of work is queued, runs some queued work of randomly chosen streams."""

    def __init__(self, seed: int = 0, eagerness: int = 3) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._eagerness = eagerness
        self.memory_limit: int | None = None
        self.stuck = False

    def enqueue(self, stream: int, work: Callable[[], None]) -> None:
        super().enqueue(stream, work)
        self.advance(self._random.randint(0, self._eagerness))

    def advance(self, steps: int) -> None:
        """Run up to `steps` pieces of work, each the first of a random stream."""
        for _ in range(steps):
            busy = [queue for queue in self.queues.values() if queue]
            if busy:
                self._random.choice(busy).popleft()()

    def cudaEventQuery(self, handle: int) -> tuple[Status]:  # noqa: N802 -- the library's name
        if not self.stuck:
            self.advance(self._random.randint(0, self._eagerness))
        return super().cudaEventQuery(handle)

    def cudaMalloc(self, nbytes: int) -> tuple[Status, int]:  # noqa: N802 -- the library's name
        used = sum(ctypes.sizeof(buffer) for buffer in self.memory.values())
        if self.memory_limit is not None and used + nbytes > self.memory_limit:
            return Status.cudaErrorMemoryAllocation, 0
        return self._allocate(nbytes)


@dataclass
class FakeTensor:
    """The tensor that `as_tensor` returns."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: str

    def array(self) -> np.ndarray:
        count = int(np.prod(self.shape)) * self.dtype.itemsize
        memory = (ctypes.c_uint8 * count).from_address(self.address)
        return np.frombuffer(memoryview(memory), self.dtype).reshape(self.shape)


@dataclass
class FakeCvCuda:
    """The functions that service/devices/gpu_cvcuda.py calls, on a fake runtime; calls are recorded and can fail."""

    runtime: FakeRuntime
    calls: list[str] = field(default_factory=list)
    wrapped: int = 0
    fail: dict[str, Exception] = field(default_factory=dict)

    def as_stream(self, handle: int) -> Any:
        assert handle in self.runtime.queues, "no such stream"
        return SimpleNamespace(handle=handle)

    def as_tensor(self, buffer: Any, layout: str) -> FakeTensor:
        described = buffer.__cuda_array_interface__
        assert described["strides"] is None
        assert described["stream"] == -1, "CV-CUDA would wait for the legacy default stream"
        assert len(layout) == len(described["shape"])
        self.wrapped += 1
        return FakeTensor(described["data"][0], tuple(described["shape"]), np.dtype(described["typestr"]), layout)

    def convertto_into(
        self, dst: FakeTensor, src: FakeTensor, scale: float = 1, offset: float = 0, *, stream: Any
    ) -> None:
        assert (dst.layout, src.layout) == ("NHWC", "NHWC")
        assert dst.shape == src.shape
        assert src.shape[-1] <= 4

        def work() -> None:
            with np.errstate(all="ignore"):
                values = src.array().astype(np.float32) * np.float32(scale) + np.float32(offset)
                if dst.dtype == np.uint8:
                    values = np.rint(np.clip(np.nan_to_num(values, nan=0.0), 0, 255))
                dst.array()[...] = values

        self._start("convertto", stream, work)

    def reformat_into(self, dst: FakeTensor, src: FakeTensor, *, stream: Any) -> None:
        order = {("NCHW", "NHWC"): (0, 3, 1, 2), ("NHWC", "NCHW"): (0, 2, 3, 1)}[dst.layout, src.layout]
        assert dst.dtype == src.dtype
        assert dst.shape == tuple(src.shape[axis] for axis in order)

        def work() -> None:
            dst.array()[...] = src.array().transpose(order)

        self._start("reformat", stream, work)

    def histogram_into(self, histogram: FakeTensor, src: FakeTensor, *, stream: Any) -> None:
        assert (src.layout, src.shape[-1], src.dtype) == ("NHWC", 1, np.dtype(np.uint8))
        assert (histogram.layout, histogram.shape) == ("HWC", (src.shape[0], 256, 1))

        def work() -> None:  # adds to the old counts, as CV-CUDA 0.15 does in three quarters of the bins
            for row, picture in zip(histogram.array(), src.array(), strict=True):
                row[:, 0] += np.bincount(picture.ravel(), minlength=256).astype(np.int32)

        self._start("histogram", stream, work)

    def _start(self, name: str, stream: Any, work: Callable[[], None]) -> None:
        self.calls.append(name)
        if (error := self.fail.pop(name, None)) is not None:
            raise error
        self.runtime.enqueue(stream.handle, work)


class FakeStreamEngine(Engine):
    """The fake engine's arithmetic on device memory, in stream order."""

    name = "fake-stream"
    device = "cuda:0"
    precision = "fp32"

    def __init__(self, manifest: Manifest, cuda: Cuda, max_shape: BatchShape) -> None:
        self.manifest = manifest
        self.max_shape = max_shape
        self.max_rows = max_shape.batch
        self.refuse: list[Exception] = []
        """Raised by the next calls of `enqueue`."""
        self.largest_batch: int | None = None
        """Larger batches run out of memory."""
        self.poison: list[float] = []
        """Written into the first value of the first row of the next outputs."""
        self.enqueued: list[BatchShape] = []
        self._cuda = cuda
        self._arithmetic = FakeEngine(manifest)
        self._buffers: dict[str, DeviceBuffer] = {
            spec.name: cuda.device_buffer(int(np.prod(tensor_shape(spec, max_shape))) * np.dtype(spec.dtype).itemsize)
            for spec in (*manifest.inputs, manifest.output)
        }
        for buffer in self._buffers.values():  # device memory is not zeroed either
            ctypes.memset(buffer.address, 0xA5, buffer.nbytes)

    @property
    def addresses(self) -> Mapping[str, int]:
        return {name: buffer.address for name, buffer in self._buffers.items()}

    def enqueue(self, shape: BatchShape, stream: Stream) -> None:
        if self.refuse:
            raise self.refuse.pop(0)
        if self.largest_batch is not None and shape.batch > self.largest_batch:
            raise EngineOutOfMemory(f"no room for {shape.batch}; use smaller batches")
        poison = self.poison.pop(0) if self.poison else None
        self.enqueued.append(shape)

        def work() -> None:
            feed = {spec.name: self._array(spec, shape).copy() for spec in self.manifest.inputs}
            output = np.ascontiguousarray(self._arithmetic.infer(feed)["output"])
            if poison is not None:
                output.reshape(-1)[0] = poison
            self._array(self.manifest.output, shape)[...] = output

        self._cuda.runtime.enqueue(stream.handle, work)

    def infer(self, feed: Feed) -> Outputs:
        return self._arithmetic.infer(feed)

    def close(self) -> None:
        for buffer in self._buffers.values():
            buffer.close()

    def _array(self, spec: Any, shape: BatchShape) -> np.ndarray:
        return FakeTensor(self.addresses[spec.name], tensor_shape(spec, shape), np.dtype(spec.dtype), "").array()
