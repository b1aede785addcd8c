"""What the statuses of the CUDA runtime mean, in our own words.

Names and meanings: CUDA Runtime API, cudaError_t.
"""

from __future__ import annotations

from engines.errors import DeviceLost, EngineError, EngineFailed, EngineOutOfMemory, EngineUnavailable

_MISSING = frozenset(
    {
        "cudaErrorNoDevice",
        "cudaErrorInsufficientDriver",
        "cudaErrorInitializationError",
        "cudaErrorSystemDriverMismatch",
        "cudaErrorCompatNotSupportedOnDevice",
        "cudaErrorStubLibrary",
        "cudaErrorInvalidDevice",
    }
)
# after these every later call fails too: the context is lost
_FATAL = frozenset(
    {
        "cudaErrorIllegalAddress",
        "cudaErrorLaunchFailure",
        "cudaErrorLaunchTimeout",
        "cudaErrorHardwareStackError",
        "cudaErrorIllegalInstruction",
        "cudaErrorMisalignedAddress",
        "cudaErrorInvalidAddressSpace",
        "cudaErrorInvalidPc",
        "cudaErrorAssert",
        "cudaErrorECCUncorrectable",
        "cudaErrorContained",
        "cudaErrorNvlinkUncorrectable",
        "cudaErrorDevicesUnavailable",
        "cudaErrorCudartUnloading",
        "cudaErrorUnknown",
    }
)


def error_of(function: str, status: str) -> EngineError:
    """The error that a status other than success means; `status` by the name the runtime gives it."""
    said = f"{function}: {status}"
    if status == "cudaErrorMemoryAllocation":
        return EngineOutOfMemory(f"the GPU is out of memory ({said}); use smaller batches or free some")
    if status in _MISSING:
        return EngineUnavailable(f"no usable NVIDIA GPU ({said}); see nvidia-smi")
    if status in _FATAL:
        return DeviceLost(f"the GPU context is lost ({said}); start the process again")
    return EngineFailed(f"CUDA refused ({said})")
