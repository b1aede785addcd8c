"""The speed of hardware_jpeg.py's decoder: threads that decode, alone and beside matrix products."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.gpu.hardware_jpeg_files import class_of
from benchmarks.gpu.hardware_jpeg_lane import JpegLane, JpegToHost
from engines.cuda.api import Cuda


class Host:
    """Files and pixels in page-locked memory."""

    def __init__(self, cuda: Cuda, nbytes: int) -> None:
        self.pinned = cuda.pinned_buffer(nbytes)
        self.bytes = self.pinned.array((nbytes,), "uint8")
        self.used = 0

    def place(self, data: bytes) -> int:
        """Copy a file into the memory and return its address."""
        self.bytes[self.used : self.used + len(data)] = np.frombuffer(data, np.uint8)
        address = self.pinned.address + self.used
        self.used += -(-len(data) // 256) * 256
        return address

    def room(self, nbytes: int) -> int:
        """Reserve memory and return its offset."""
        at = self.used
        self.used += -(-nbytes // 256) * 256
        return at


@dataclass(slots=True)
class _Turns:
    """One thread's calls: four, in turn, until the time is over."""

    cuda: Cuda
    open_lane: Callable[[], JpegLane]
    files: Sequence[bytes]
    batch: int
    ready: threading.Barrier
    until: float = float("inf")
    """Set when all threads are ready."""
    done: int = 0
    cpu_s: float = 0.0
    took_s: list[float] = field(default_factory=list)

    def run(self, number: int) -> None:
        """Decode until the time is over."""
        self.cuda.make_current()
        lane, host = self.open_lane(), Host(self.cuda, 64 << 20)
        first = number * 3
        calls = [
            self._call(host, range(at, at + self.batch)) for at in range(first, first + 4 * self.batch, self.batch)
        ]
        for call in calls:
            lane.decode(call)
        self.ready.wait()
        began, turn = time.thread_time(), 0
        while (now := time.perf_counter()) < self.until:
            lane.decode(calls[turn % 4])
            self.took_s.append(time.perf_counter() - now)
            turn += 1
        self.done, self.cpu_s = turn * self.batch, time.thread_time() - began
        lane.close()
        host.pinned.close()

    def _call(self, host: Host, numbers: Iterable[int]) -> list[JpegToHost]:
        call = []
        for number in numbers:
            data = self.files[number % len(self.files)]
            _, planes = class_of(data)
            assert planes is not None
            room = host.room(3 * planes.height * planes.width)
            call.append(JpegToHost(host.place(data), len(data), planes, host.pinned.address + room))
        return call


def speed(
    cuda: Cuda, open_lane: Callable[[], JpegLane], files: Sequence[bytes], *, lanes: int, batch: int, seconds: float
) -> dict[str, float]:
    """Return pictures a second, CPU time of a picture, and the median time of a call, in ms."""
    ready = threading.Barrier(lanes + 1)
    turns = [_Turns(cuda, open_lane, files, batch, ready) for _ in range(lanes)]
    threads = [threading.Thread(target=one.run, args=(number,)) for number, one in enumerate(turns)]
    for thread in threads:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for one in turns:
        one.until = started + seconds
    for thread in threads:
        thread.join()
    wall_s, done = time.perf_counter() - started, sum(one.done for one in turns)
    return {
        "a_second": round(done / wall_s),
        "cpu_ms": round(1e3 * sum(one.cpu_s for one in turns) / done, 4),
        "call_ms": round(1e3 * float(np.median([took for one in turns for took in one.took_s])), 3),
    }
