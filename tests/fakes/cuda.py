# ruff: noqa: N802, N815 -- the names are those of the library that it stands for
"""A fake device in host memory: the part of `cuda.bindings.runtime` that engines/cuda/api.py uses.

Queued work runs only when the stream is synchronised, so a missing wait reliably gives a wrong result.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from itertools import count
from types import SimpleNamespace
from typing import Any


class Status(IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorNoDevice = 100
    cudaErrorIllegalAddress = 700
    cudaErrorNotReady = 600
    cudaErrorStreamCaptureUnsupported = 900


OK = Status.cudaSuccess


class FakeRuntime:
    """A fake runtime: records the names of its calls; `fail` maps a name to the status of its next call."""

    cudaStreamNonBlocking = 1
    cudaHostRegisterPortable = 1
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2, cudaMemcpyDeviceToDevice=3)
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)

    def __init__(self, name: bytes = b"Fake GPU\0\0") -> None:
        self.name = name
        self.calls: list[str] = []
        self.fail: dict[str, Status] = {}
        self.memory: dict[int, Any] = {}
        self.locked: dict[int, int] = {}
        self.queues: dict[int, deque[Callable[[], None]]] = {}
        self.events: dict[int, tuple[deque[Callable[[], None]], Callable[[], None]] | None] = {}
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.capturing: dict[int, list[Callable[[], None]]] = {}
        self._handles = count(1)

    @property
    def alive(self) -> int:
        """Number of objects that were created and not yet destroyed."""
        return len(self.memory) + len(self.queues) + len(self.events) + len(self.graphs)

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if name.startswith("cuda") and callable(value):
            self.calls.append(name)
            if (status := self.fail.pop(name, None)) is not None:
                return lambda *_: (status, None)
        return value

    def enqueue(self, stream: int, work: Callable[[], None]) -> None:
        self.capturing.get(stream, self.queues[stream]).append(work)

    def cudaSetDevice(self, _index: int) -> tuple[Status]:
        return (OK,)

    def cudaGetDeviceProperties(self, _index: int) -> tuple[Status, Any]:
        return OK, SimpleNamespace(name=self.name, major=8, minor=9, totalGlobalMem=1 << 30)

    def cudaDriverGetVersion(self) -> tuple[Status, int]:
        return OK, 13000

    def _allocate(self, nbytes: int) -> tuple[Status, int]:
        buffer = (ctypes.c_uint8 * nbytes)()
        address = ctypes.addressof(buffer)
        self.memory[address] = buffer
        return OK, address

    cudaMalloc = cudaMallocHost = _allocate

    def _free(self, address: int) -> tuple[Status]:
        del self.memory[address]
        return (OK,)

    cudaFree = cudaFreeHost = _free

    def cudaHostRegister(self, address: int, nbytes: int, _flags: int) -> tuple[Status]:
        self.locked[address] = nbytes
        return (OK,)

    def cudaHostUnregister(self, address: int) -> tuple[Status]:
        del self.locked[address]
        return (OK,)

    def cudaMemcpyAsync(self, target: int, source: int, nbytes: int, _kind: int, stream: int) -> tuple[Status]:
        self.enqueue(stream, lambda: ctypes.memmove(target, source, nbytes) and None)
        return (OK,)

    def cudaMemsetAsync(self, target: int, value: int, nbytes: int, stream: int) -> tuple[Status]:
        self.enqueue(stream, lambda: ctypes.memset(target, value, nbytes) and None)
        return (OK,)

    def cudaStreamCreateWithFlags(self, _flags: int) -> tuple[Status, int]:
        handle = next(self._handles)
        self.queues[handle] = deque()
        return OK, handle

    def cudaStreamDestroy(self, handle: int) -> tuple[Status]:
        del self.queues[handle]
        return (OK,)

    def cudaStreamSynchronize(self, handle: int) -> tuple[Status]:
        queue = self.queues[handle]
        while queue:
            queue.popleft()()
        return (OK,)

    def cudaEventCreate(self) -> tuple[Status, int]:
        handle = next(self._handles)
        self.events[handle] = None
        return OK, handle

    def cudaEventDestroy(self, handle: int) -> tuple[Status]:
        del self.events[handle]
        return (OK,)

    def cudaEventRecord(self, handle: int, stream: int) -> tuple[Status]:
        def mark() -> None:
            pass

        self.events[handle] = (self.queues[stream], mark)
        self.enqueue(stream, mark)
        return (OK,)

    def cudaEventSynchronize(self, handle: int) -> tuple[Status]:
        if (recorded := self.events[handle]) is not None:
            queue, mark = recorded
            while mark in queue:
                queue.popleft()()
        return (OK,)

    def cudaEventQuery(self, handle: int) -> tuple[Status]:
        recorded = self.events[handle]
        return (Status.cudaErrorNotReady if recorded is not None and recorded[1] in recorded[0] else OK,)

    def cudaStreamWaitEvent(self, stream: int, handle: int, _flags: int) -> tuple[Status]:
        self.enqueue(stream, lambda: self.cudaEventSynchronize(handle) and None)
        return (OK,)

    def cudaEventElapsedTime(self, _start: int, _end: int) -> tuple[Status, float]:
        return OK, 1.5

    def cudaStreamBeginCapture(self, stream: int, _mode: int) -> tuple[Status]:
        self.capturing[stream] = []
        return (OK,)

    def cudaStreamEndCapture(self, stream: int) -> tuple[Status, int]:
        handle = next(self._handles)
        self.graphs[handle] = self.capturing.pop(stream)
        return OK, handle

    def cudaGraphDestroy(self, handle: int) -> tuple[Status]:
        del self.graphs[handle]
        return (OK,)

    cudaGraphExecDestroy = cudaGraphDestroy

    def cudaGraphInstantiate(self, graph: int, _flags: int) -> tuple[Status, int]:
        handle = next(self._handles)
        self.graphs[handle] = list(self.graphs[graph])
        return OK, handle

    def cudaGraphLaunch(self, handle: int, stream: int) -> tuple[Status]:
        for work in self.graphs[handle]:
            self.enqueue(stream, work)
        return (OK,)
