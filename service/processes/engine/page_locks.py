"""Page-locking of shared memory, so that a GPU copies from and to it by itself, at the full speed of the bus."""

from __future__ import annotations

from typing import Protocol

import structlog

from engines.choice import EngineChoice
from engines.cuda.api import Cuda, open_cuda
from engines.cuda.gpu_detection import has_nvidia_gpu
from engines.errors import EngineError
from service.processes.shared.slots import Memory

_log = structlog.get_logger(__name__)

_ON_GPUS = frozenset({"auto", "trt", "inductor", "onnxrt-cuda"})


class PageLocks(Protocol):
    """Locks memory, and unlocks it before it is unmapped."""

    def lock(self, memory: Memory) -> bool:
        """Whether the memory is page-locked from now on."""

    def unlock(self, memory: Memory) -> None:
        """Nothing reads or writes it any more."""


class NoLocks:
    """Without a GPU there is nothing to lock for."""

    def lock(self, memory: Memory) -> bool:  # noqa: ARG002 -- as PageLocks
        return False

    def unlock(self, memory: Memory) -> None:
        """Nothing was locked."""


class CudaLocks:
    """Locks for one GPU.

    Args:
        cuda: the device.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._locked: set[int] = set()

    def lock(self, memory: Memory) -> bool:
        try:
            self._cuda.use()
            flags = self._cuda.runtime.cudaHostRegisterPortable
            self._cuda.call("cudaHostRegister", memory.address, memory.nbytes, flags)
        except EngineError as error:  # a limit of locked memory, for one: slower, and as right
            _log.warning("slots not page-locked", reason=str(error))
            return False
        self._locked.add(memory.address)
        return True

    def unlock(self, memory: Memory) -> None:
        if memory.address not in self._locked:
            return
        self._locked.discard(memory.address)
        try:
            self._cuda.use()
            self._cuda.call("cudaHostUnregister", memory.address)
        except EngineError as error:
            _log.warning("slots not unlocked", reason=str(error))


def open_page_locks(choice: EngineChoice) -> PageLocks:
    """Locks for this process's GPU, if engines of that choice may use one."""
    if choice not in _ON_GPUS or not has_nvidia_gpu():
        return NoLocks()
    try:
        return CudaLocks(open_cuda())
    except EngineError as error:
        _log.info("slots are not page-locked", reason=str(error))
        return NoLocks()
