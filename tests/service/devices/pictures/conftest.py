"""Lane pools on a GPU in host memory, and steps on it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engines.cuda.api import Cuda
from service.devices.pictures.lane import PictureLane
from service.devices.pictures.lane_pool import LanePool
from service.devices.pictures.lane_thread import LaneOptions
from service.devices.pictures.steps import PictureSteps
from tests.fakes.clock import Clock
from tests.fakes.cuda import FakeRuntime
from tests.fakes.jpeg_planes import FakePlanesDecoder
from tests.fakes.picture_kernels import EmulatedKernels


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def cuda(runtime: FakeRuntime) -> Cuda:
    return Cuda(runtime)


@pytest.fixture
def kernels(kernel_library: ctypes.CDLL, runtime: FakeRuntime) -> EmulatedKernels:
    return EmulatedKernels(kernel_library, runtime)


@pytest.fixture
def compute(cuda: Cuda, kernels: EmulatedKernels) -> Callable[[Callable[[PictureSteps], Any]], None]:
    """Queues steps on a stream, and waits for them."""

    def run(queue: Callable[[PictureSteps], Any]) -> None:
        stream = cuda.stream()
        queue(PictureSteps(kernels, stream))
        stream.synchronise()
        stream.close()

    return run


@pytest.fixture
def decoder(runtime: FakeRuntime) -> FakePlanesDecoder:
    return FakePlanesDecoder(runtime)


@pytest.fixture
def open_lane_pool(
    cuda: Cuda, kernels: EmulatedKernels, decoder: FakePlanesDecoder, clock: Clock
) -> Iterator[Callable[..., LanePool]]:
    pools: list[LanePool] = []

    def start(lanes: int = 1, batch: int = 4, pictures: int = 8, **limits: int) -> LanePool:
        options = LaneOptions(lambda cuda: PictureLane(cuda, decoder, kernels), batch, pictures, clock, **limits)
        pools.append(LanePool(cuda, lanes, options))
        return pools[-1]

    yield start
    decoder.gate.set()
    for pool in pools:
        pool.close()
