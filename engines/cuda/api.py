"""A small CUDA interface through cuda-python, without torch: memory, streams, events and graphs.

The creator of an object closes it; a second close does nothing. Nothing here is thread-safe: one thread owns the
device.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engines.cuda.status_errors import error_for_status
from engines.errors import EngineError, EngineUnavailable


class Device(NamedTuple):
    """The properties of a GPU that a TensorRT plan depends on."""

    name: str
    capability: tuple[int, int]
    driver: int
    """The highest CUDA version that the driver supports, such as 13000 for 13.0."""
    memory_bytes: int


class Cuda:
    """One CUDA device and the calls of the CUDA runtime on it.

    Args:
        runtime: the module `cuda.bindings.runtime`, or a fake with the same functions.
        index: the device's number.

    Raises:
        EngineUnavailable: there is no such device, or no driver for it.
    """

    def __init__(self, runtime: Any, index: int = 0) -> None:
        self.runtime = runtime
        self.index = index
        self.call_runtime("cudaSetDevice", index)
        properties = self.call_runtime("cudaGetDeviceProperties", index)
        name = properties.name.decode() if isinstance(properties.name, bytes) else str(properties.name)
        self.device = Device(
            name.rstrip("\0"),
            (properties.major, properties.minor),
            self.call_runtime("cudaDriverGetVersion"),
            properties.totalGlobalMem,
        )

    def call_runtime(self, function: str, *arguments: Any) -> Any:
        """Call a function of the CUDA runtime; returns its result, a tuple if there are several.

        Raises:
            EngineOutOfMemory, DeviceLost, EngineUnavailable, EngineFailed: depending on the status that it returns.
        """
        status, *results = getattr(self.runtime, function)(*arguments)
        self.check_status(function, status)
        return results[0] if len(results) == 1 else tuple(results)

    def check_status(self, function: str, status: Any) -> None:
        """Raise the error for a status of the CUDA runtime unless it is success; raises as `call_runtime`."""
        if int(status) != 0:
            raise error_for_status(function, getattr(status, "name", str(status)))

    def make_current(self) -> None:
        """Make this device current for the calling thread; each thread calls this once, before anything else."""
        self.call_runtime("cudaSetDevice", self.index)

    def stream(self) -> Stream:
        """Create a stream that does not synchronise with the default stream."""
        return Stream(self, self.call_runtime("cudaStreamCreateWithFlags", self.runtime.cudaStreamNonBlocking))

    def event(self) -> Event:
        """Create an event that records its time."""
        return Event(self, self.call_runtime("cudaEventCreate"))

    def device_buffer(self, nbytes: int) -> DeviceBuffer:
        """Allocate uninitialised device memory."""
        return DeviceBuffer(self, int(self.call_runtime("cudaMalloc", nbytes)), nbytes)

    def pinned_buffer(self, nbytes: int) -> PinnedBuffer:
        """Allocate page-locked host memory, which the device can copy from and to without the CPU."""
        return PinnedBuffer(self, int(self.call_runtime("cudaMallocHost", nbytes)), nbytes)

    def copy_in(self, target: DeviceBuffer, source: PinnedBuffer, nbytes: int, stream: Stream) -> None:
        """Start a copy to the device; `source` must not change before the stream has executed it."""
        self._copy(target.address, source.address, nbytes, "cudaMemcpyHostToDevice", stream)

    def copy_out(self, target: PinnedBuffer, source: DeviceBuffer, nbytes: int, stream: Stream) -> None:
        """Start a copy from the device; `target` is valid once the stream has executed it."""
        self._copy(target.address, source.address, nbytes, "cudaMemcpyDeviceToHost", stream)

    def copy_within(self, target: DeviceBuffer, source: DeviceBuffer, nbytes: int, stream: Stream) -> None:
        """Start a copy between two buffers of the device."""
        self._copy(target.address, source.address, nbytes, "cudaMemcpyDeviceToDevice", stream)

    def clear(self, target: DeviceBuffer, nbytes: int, stream: Stream) -> None:
        """Start setting the first `nbytes` bytes to zero."""
        self.call_runtime("cudaMemsetAsync", target.address, 0, nbytes, stream.handle)

    def _copy(self, target: int, source: int, nbytes: int, kind: str, stream: Stream) -> None:
        kinds = self.runtime.cudaMemcpyKind
        self.call_runtime("cudaMemcpyAsync", target, source, nbytes, getattr(kinds, kind), stream.handle)

    @contextmanager
    def capture(self, stream: Stream) -> Iterator[Callable[[], Graph]]:
        """Record the work launched on the stream; the yielded function returns the graph after the block.

        Raises:
            EngineError: something in the block cannot be captured; the stream can be used again.
        """
        mode = self.runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self.call_runtime("cudaStreamBeginCapture", stream.handle, mode)
        captured: list[Any] = []
        try:
            yield lambda: self._instantiate(captured[0])
        except BaseException:
            self._abandon_capture(stream)
            raise
        captured.append(self.call_runtime("cudaStreamEndCapture", stream.handle))

    def _abandon_capture(self, stream: Stream) -> None:
        try:
            graph = self.call_runtime("cudaStreamEndCapture", stream.handle)
        except EngineError:  # the capture had already failed with the error that the caller gets
            return
        self.call_runtime("cudaGraphDestroy", graph)

    def _instantiate(self, graph: Any) -> Graph:
        try:
            return Graph(self, self.call_runtime("cudaGraphInstantiate", graph, 0))
        finally:
            self.call_runtime("cudaGraphDestroy", graph)


@dataclass(slots=True)
class _CudaHandle:
    """A handle of the CUDA runtime that must be destroyed."""

    cuda: Cuda
    handle: Any

    def _close(self, function: str) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            self.cuda.call_runtime(function, handle)


class Stream(_CudaHandle):
    """A CUDA stream: a queue of work that the device executes in order."""

    def synchronise(self) -> None:
        """Wait until everything in the queue is executed.

        Raises:
            EngineDead: the work failed and the CUDA context is lost.
        """
        self.cuda.call_runtime("cudaStreamSynchronize", self.handle)

    def wait_for(self, event: Event) -> None:
        """Make later work on this stream wait for the event, without blocking the CPU."""
        self.cuda.call_runtime("cudaStreamWaitEvent", self.handle, event.handle, 0)

    def close(self) -> None:
        self._close("cudaStreamDestroy")


class Event(_CudaHandle):
    """A CUDA event: a point in a stream that can be waited for and timed."""

    def record(self, stream: Stream) -> None:
        self.cuda.call_runtime("cudaEventRecord", self.handle, stream.handle)

    def passed(self) -> bool:
        """Return whether the device has reached the event, without waiting."""
        status, *_ = self.cuda.runtime.cudaEventQuery(self.handle)
        if getattr(status, "name", "") == "cudaErrorNotReady":
            return False
        self.cuda.check_status("cudaEventQuery", status)
        return True

    def synchronise(self) -> None:
        """Wait until the device has reached the event."""
        self.cuda.call_runtime("cudaEventSynchronize", self.handle)

    def seconds_since(self, earlier: Event) -> float:
        """Return the device time between two events that have been reached, in seconds."""
        return float(self.cuda.call_runtime("cudaEventElapsedTime", earlier.handle, self.handle)) / 1e3

    def close(self) -> None:
        self._close("cudaEventDestroy")


class Graph(_CudaHandle):
    """A CUDA graph: recorded work that one call launches."""

    def launch(self, stream: Stream) -> None:
        self.cuda.call_runtime("cudaGraphLaunch", self.handle, stream.handle)

    def close(self) -> None:
        self._close("cudaGraphExecDestroy")


@dataclass(slots=True)
class DeviceBuffer:
    """An allocation of device memory."""

    cuda: Cuda
    address: int
    nbytes: int

    def close(self) -> None:
        address, self.address = self.address, 0
        if address:
            self.cuda.call_runtime("cudaFree", address)


@dataclass(slots=True)
class PinnedBuffer:
    """An allocation of page-locked host memory."""

    cuda: Cuda
    address: int
    nbytes: int

    def array(self, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        """View the start of the memory as an array of that shape; invalid after `close`."""
        memory = (ctypes.c_uint8 * self.nbytes).from_address(self.address)
        flat: NDArray[Any] = np.frombuffer(memoryview(memory), np.dtype(dtype), int(np.prod(shape)))
        return flat.reshape(shape)

    def close(self) -> None:
        address, self.address = self.address, 0
        if address:
            self.cuda.call_runtime("cudaFreeHost", address)


def driver_version() -> int:
    """Return the CUDA version that the driver supports, such as 13000, without cuda-python; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return version.value


def open_cuda(index: int = 0) -> Cuda:
    """Open a CUDA device of this host.

    Raises:
        EngineUnavailable: cuda-python, a driver or the device is missing.
    """
    try:
        runtime = importlib.import_module("cuda.bindings.runtime")
    except ImportError as error:
        raise EngineUnavailable("cuda-python is not installed; retouch install-gpu") from error
    return Cuda(runtime, index)
