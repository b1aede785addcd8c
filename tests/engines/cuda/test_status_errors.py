"""CUDA status codes map to errors by the remedy."""

from __future__ import annotations

import pytest

from engines.cuda.api import Cuda
from engines.errors import EngineDead, EngineFailed, EngineOutOfMemory, EngineUnavailable
from tests.fakes.cuda import FakeRuntime, Status


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (Status.cudaErrorMemoryAllocation, EngineOutOfMemory, "out of memory"),
        (Status.cudaErrorNoDevice, EngineUnavailable, "no usable NVIDIA GPU"),
        (Status.cudaErrorIllegalAddress, EngineDead, "context is lost"),
        (Status.cudaErrorInvalidValue, EngineFailed, "CUDA refused"),
    ],
)
def test_errors_say_what_can_be_done(status, error, words):
    runtime = FakeRuntime()
    cuda = Cuda(runtime)
    runtime.fail["cudaMalloc"] = status
    with pytest.raises(error, match=rf"{words} \(cudaMalloc: {status.name}\)"):
        cuda.device_buffer(4)
