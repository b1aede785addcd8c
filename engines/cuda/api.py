"""CUDA without torch: memory, streams, events and graphs through cuda-python.

Whoever makes an object closes it; closing twice is allowed. Nothing here is safe for two threads at once: one thread
owns the device.
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

from engines.cuda.statuses import error_of
from engines.errors import EngineError, EngineUnavailable


class Device(NamedTuple):
    """What a plan depends on."""

    name: str
    capability: tuple[int, int]
    driver: int
    """The CUDA version that the driver speaks, such as 13000."""
    memory_bytes: int


class Cuda:
    """One device, and the calls that are made to it.

    Args:
        runtime: `cuda.bindings.runtime`, or what behaves like it.
        index: the device.

    Raises:
        EngineUnavailable: there is no such device, or no driver for it.
    """

    def __init__(self, runtime: Any, index: int = 0) -> None:
        self.runtime = runtime
        self.index = index
        self.call("cudaSetDevice", index)
        properties = self.call("cudaGetDeviceProperties", index)
        name = properties.name.decode() if isinstance(properties.name, bytes) else str(properties.name)
        self.device = Device(
            name.rstrip("\0"),
            (properties.major, properties.minor),
            self.call("cudaDriverGetVersion"),
            properties.totalGlobalMem,
        )

    def call(self, function: str, *arguments: Any) -> Any:
        """Call the runtime; returns its result (a tuple where there are several).

        Raises:
            EngineOutOfMemory, DeviceLost, EngineUnavailable, EngineFailed: by what the runtime answers.
        """
        status, *results = getattr(self.runtime, function)(*arguments)
        self.check(function, status)
        return results[0] if len(results) == 1 else tuple(results)

    def check(self, function: str, status: Any) -> None:
        """Raise what a status of the runtime means, if it is an error; as `call`."""
        if int(status) != 0:
            raise error_of(function, getattr(status, "name", str(status)))

    def use(self) -> None:
        """Make this device the calling thread's; a thread does so once, before anything else."""
        self.call("cudaSetDevice", self.index)

    def stream(self) -> Stream:
        """A new stream that does not wait for the default one."""
        return Stream(self, self.call("cudaStreamCreateWithFlags", self.runtime.cudaStreamNonBlocking))

    def event(self) -> Event:
        """A new event that can be timed."""
        return Event(self, self.call("cudaEventCreate"))

    def device_buffer(self, nbytes: int) -> DeviceBuffer:
        """Uninitialised device memory."""
        return DeviceBuffer(self, int(self.call("cudaMalloc", nbytes)), nbytes)

    def pinned_buffer(self, nbytes: int) -> PinnedBuffer:
        """Page-locked host memory, which copies without the processor."""
        return PinnedBuffer(self, int(self.call("cudaMallocHost", nbytes)), nbytes)

    def copy_in(self, target: DeviceBuffer, source: PinnedBuffer, nbytes: int, stream: Stream) -> None:
        """Start copying to the device; `source` must not change before the stream gets there."""
        self._copy(target.address, source.address, nbytes, "cudaMemcpyHostToDevice", stream)

    def copy_out(self, target: PinnedBuffer, source: DeviceBuffer, nbytes: int, stream: Stream) -> None:
        """Start copying from the device; `target` is valid once the stream got there."""
        self._copy(target.address, source.address, nbytes, "cudaMemcpyDeviceToHost", stream)

    def copy_within(self, target: DeviceBuffer, source: DeviceBuffer, nbytes: int, stream: Stream) -> None:
        """Start copying from one place of the device to another."""
        self._copy(target.address, source.address, nbytes, "cudaMemcpyDeviceToDevice", stream)

    def clear(self, target: DeviceBuffer, nbytes: int, stream: Stream) -> None:
        """Start setting the first bytes to zero."""
        self.call("cudaMemsetAsync", target.address, 0, nbytes, stream.handle)

    def _copy(self, target: int, source: int, nbytes: int, kind: str, stream: Stream) -> None:
        kinds = self.runtime.cudaMemcpyKind
        self.call("cudaMemcpyAsync", target, source, nbytes, getattr(kinds, kind), stream.handle)

    @contextmanager
    def capture(self, stream: Stream) -> Iterator[Callable[[], Graph]]:
        """Record what is launched on the stream instead of running it; call what this yields after the block.

        Raises:
            EngineError: something in the block cannot be captured; the stream can be used again.
        """
        mode = self.runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self.call("cudaStreamBeginCapture", stream.handle, mode)
        captured: list[Any] = []
        try:
            yield lambda: self._instantiate(captured[0])
        except BaseException:
            self._abandon_capture(stream)
            raise
        captured.append(self.call("cudaStreamEndCapture", stream.handle))

    def _abandon_capture(self, stream: Stream) -> None:
        try:
            graph = self.call("cudaStreamEndCapture", stream.handle)
        except EngineError:  # the capture was broken already, which is why it is abandoned
            return
        self.call("cudaGraphDestroy", graph)

    def _instantiate(self, graph: Any) -> Graph:
        try:
            return Graph(self, self.call("cudaGraphInstantiate", graph, 0))
        finally:
            self.call("cudaGraphDestroy", graph)


@dataclass(slots=True)
class _Handle:
    """Something that the runtime gave and wants back."""

    cuda: Cuda
    handle: Any

    def _close(self, function: str) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            self.cuda.call(function, handle)


class Stream(_Handle):
    """A queue of work that the device does in order."""

    def synchronise(self) -> None:
        """Wait for everything in the queue.

        Raises:
            EngineDead: the work went wrong in a way that the device does not survive.
        """
        self.cuda.call("cudaStreamSynchronize", self.handle)

    def wait_for(self, event: Event) -> None:
        """Let later work wait for the event, without the processor waiting."""
        self.cuda.call("cudaStreamWaitEvent", self.handle, event.handle, 0)

    def close(self) -> None:
        self._close("cudaStreamDestroy")


class Event(_Handle):
    """A mark in a stream."""

    def record(self, stream: Stream) -> None:
        self.cuda.call("cudaEventRecord", self.handle, stream.handle)

    def passed(self) -> bool:
        """Whether the device has passed the mark; does not wait."""
        status, *_ = self.cuda.runtime.cudaEventQuery(self.handle)
        if getattr(status, "name", "") == "cudaErrorNotReady":
            return False
        self.cuda.check("cudaEventQuery", status)
        return True

    def synchronise(self) -> None:
        """Wait until the device has passed the mark."""
        self.cuda.call("cudaEventSynchronize", self.handle)

    def seconds_since(self, earlier: Event) -> float:
        """Device time between two marks that were passed."""
        return float(self.cuda.call("cudaEventElapsedTime", earlier.handle, self.handle)) / 1e3

    def close(self) -> None:
        self._close("cudaEventDestroy")


class Graph(_Handle):
    """Recorded work, launched as one."""

    def launch(self, stream: Stream) -> None:
        self.cuda.call("cudaGraphLaunch", self.handle, stream.handle)

    def close(self) -> None:
        self._close("cudaGraphExecDestroy")


@dataclass(slots=True)
class DeviceBuffer:
    """Memory on the device."""

    cuda: Cuda
    address: int
    nbytes: int

    def close(self) -> None:
        address, self.address = self.address, 0
        if address:
            self.cuda.call("cudaFree", address)


@dataclass(slots=True)
class PinnedBuffer:
    """Page-locked memory on the host."""

    cuda: Cuda
    address: int
    nbytes: int

    def array(self, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        """The start of the memory as an array of that shape; not valid after `close`."""
        memory = (ctypes.c_uint8 * self.nbytes).from_address(self.address)
        flat: NDArray[Any] = np.frombuffer(memoryview(memory), np.dtype(dtype), int(np.prod(shape)))
        return flat.reshape(shape)

    def close(self) -> None:
        address, self.address = self.address, 0
        if address:
            self.cuda.call("cudaFreeHost", address)


def driver_version() -> int:
    """The CUDA version that the driver speaks, such as 13000, on hosts without cuda-python too; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return version.value


def open_cuda(index: int = 0) -> Cuda:
    """The CUDA device of this host.

    Raises:
        EngineUnavailable: cuda-python, a driver or the device is missing.
    """
    try:
        runtime = importlib.import_module("cuda.bindings.runtime")
    except ImportError as error:
        raise EngineUnavailable("cuda-python is not installed; pip install -e '.[gpu]'") from error
    return Cuda(runtime, index)
