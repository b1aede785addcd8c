"""Page-locking of shared memory, so that a GPU can copy it by DMA at the full speed of the bus."""

from __future__ import annotations

from typing import Protocol

import structlog

from engines.cuda.api import Cuda, open_cuda
from engines.cuda.gpu_detection import has_nvidia_gpu
from engines.engine_names import DeviceChoice, EngineChoice
from engines.errors import EngineError
from service.processes.shared.slots import Memory

_log = structlog.get_logger(__name__)

_ON_GPUS = frozenset({"auto", "trt", "inductor", "onnxrt-cuda"})


class PageLocks(Protocol):
    """Page-locks memory, and unlocks it before it is unmapped."""

    def lock(self, memory: Memory) -> bool:
        """Page-lock the memory; return whether that succeeded."""

    def unlock(self, memory: Memory) -> None:
        """Unlock the memory; called when no batch uses it any more."""


class NoPageLocks:
    """Page locks on a host without a GPU: nothing is locked."""

    def lock(self, memory: Memory) -> bool:  # noqa: ARG002 -- as PageLocks
        return False

    def unlock(self, memory: Memory) -> None:
        """Do nothing: no memory was locked."""


class CudaPageLocks:
    """Page locks for one GPU.

    Args:
        cuda: the GPU.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._locked: set[int] = set()

    def lock(self, memory: Memory) -> bool:
        try:
            self._cuda.make_current()
            flags = self._cuda.runtime.cudaHostRegisterPortable
            self._cuda.call_runtime("cudaHostRegister", memory.address, memory.nbytes, flags)
        except EngineError as error:  # such as a limit on locked memory; copies are then only slower
            _log.warning("slots not page-locked", reason=str(error))
            return False
        self._locked.add(memory.address)
        return True

    def unlock(self, memory: Memory) -> None:
        if memory.address not in self._locked:
            return
        self._locked.discard(memory.address)
        try:
            self._cuda.make_current()
            self._cuda.call_runtime("cudaHostUnregister", memory.address)
        except EngineError as error:
            _log.warning("slots not unlocked", reason=str(error))


def open_page_locks(choice: EngineChoice, device: DeviceChoice = "auto") -> PageLocks:
    """Return page locks for this process's GPU; without a GPU that the chosen engines may use, locks do nothing."""
    if choice not in _ON_GPUS or device == "cpu" or not has_nvidia_gpu():
        return NoPageLocks()
    try:
        return CudaPageLocks(open_cuda())
    except EngineError as error:
        _log.info("slots are not page-locked", reason=str(error))
        return NoPageLocks()
