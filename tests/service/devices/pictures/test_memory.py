from __future__ import annotations

import pytest

from engines.cuda.api import Cuda
from engines.errors import EngineOutOfMemory
from service.devices.pictures.memory import KEPT_BYTES, PictureMemory
from tests.fakes.cuda import FakeRuntime, Status


def test_memory_is_used_again(cuda: Cuda) -> None:
    memory = PictureMemory(cuda, 2)
    first = memory.take(1000)
    memory.give_back(first)
    assert memory.take(2000) is first


def test_a_crowd_of_large_pictures_leaves_a_bounded_amount_behind(cuda: Cuda, runtime: FakeRuntime) -> None:
    memory = PictureMemory(cuda, 8)
    for buffer in [memory.take(KEPT_BYTES // 4) for _ in range(8)]:
        memory.give_back(buffer)
    assert runtime.alive == 4
    assert memory.vacant == 8


def test_unused_memory_is_freed_where_the_gpu_has_no_more(cuda: Cuda, runtime: FakeRuntime) -> None:
    memory = PictureMemory(cuda, 3)
    memory.give_back(memory.take(1000))
    runtime.fail["cudaMalloc"] = Status.cudaErrorMemoryAllocation
    assert memory.take(2**21).nbytes == 2**21
    assert runtime.alive == 1
    assert memory.vacant == 2
    runtime.fail["cudaMalloc"] = Status.cudaErrorMemoryAllocation
    with pytest.raises(EngineOutOfMemory):
        memory.take(2**21)
    assert memory.vacant == 2
