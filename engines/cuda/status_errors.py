"""Translates status codes of the CUDA runtime into this project's errors.

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
# statuses after which the context is lost and every later call fails
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
# faults of a kernel, each with its text from cudaGetErrorString, which torch's messages contain; other statuses in
# _FATAL have their cause in the device or the driver, or an unknown one
_KERNEL_FAULTS = {
    "cudaErrorIllegalAddress": "an illegal memory access",
    "cudaErrorLaunchFailure": "unspecified launch failure",
    "cudaErrorLaunchTimeout": "the launch timed out",
    "cudaErrorHardwareStackError": "hardware stack error",
    "cudaErrorIllegalInstruction": "an illegal instruction",
    "cudaErrorMisalignedAddress": "misaligned address",
    "cudaErrorInvalidAddressSpace": "operation not supported on global/shared address space",
    "cudaErrorInvalidPc": "invalid program counter",
    "cudaErrorAssert": "device-side assert triggered",
}


def is_kernel_fault(error: DeviceLost) -> bool:
    """Return whether a kernel lost the device: the message has the name or the text of such a status."""
    return any(part in str(error) for fault in _KERNEL_FAULTS.items() for part in fault)


def error_for_status(function: str, status: str) -> EngineError:
    """Return the error for a status other than success; `status` is its name in cudaError_t."""
    message = f"{function}: {status}"
    if status == "cudaErrorMemoryAllocation":
        return EngineOutOfMemory(f"the GPU is out of memory ({message}); use smaller batches or free some")
    if status in _MISSING:
        return EngineUnavailable(f"no usable NVIDIA GPU ({message}); see nvidia-smi")
    if status in _FATAL:
        return DeviceLost(f"the GPU context is lost ({message}); start the process again")
    return EngineFailed(f"CUDA refused ({message})")
