"""The kernels of the room, compiled once for a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from engines.cuda.api import Cuda
from service.devices.pictures.steps import PictureSteps
from tests.fakes.cuda import FakeRuntime
from tests.fakes.picture_kernels import COMPILER, EmulatedKernels, compile_kernels


@pytest.fixture(scope="session")
def kernel_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if COMPILER is None:
        pytest.skip("g++ is not installed")
    return compile_kernels(tmp_path_factory.mktemp("kernels"))


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
