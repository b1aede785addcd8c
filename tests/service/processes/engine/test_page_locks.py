"""Slots are page-locked where there is a GPU; where that fails, they are used unlocked."""

from __future__ import annotations

import os

import pytest

from engines.cuda.api import Cuda
from service.processes.engine.page_locks import CudaPageLocks, NoPageLocks, open_page_locks
from service.processes.shared.slots import Memory
from tests.fakes.cuda import FakeRuntime, Status


@pytest.fixture
def memory() -> Memory:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 8192)
    memory = Memory(descriptor, 8192)
    os.close(descriptor)
    return memory


def test_memory_is_locked_until_nothing_uses_it_any_more(memory: Memory) -> None:
    runtime = FakeRuntime()
    locks = CudaPageLocks(Cuda(runtime))
    assert locks.lock(memory)
    assert runtime.locked == {memory.address: 8192}
    locks.unlock(memory)
    locks.unlock(memory)
    assert runtime.locked == {}


def test_memory_that_cannot_be_locked_is_used_as_it_is(memory: Memory) -> None:
    runtime = FakeRuntime()
    locks = CudaPageLocks(Cuda(runtime))
    runtime.fail["cudaHostRegister"] = Status.cudaErrorMemoryAllocation
    assert not locks.lock(memory)
    locks.unlock(memory)
    assert "cudaHostUnregister" not in runtime.calls


def test_engines_of_a_cpu_lock_nothing(memory: Memory) -> None:
    locks = open_page_locks("fake")
    assert isinstance(locks, NoPageLocks)
    assert not locks.lock(memory)
