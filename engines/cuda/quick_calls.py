"""Calls of the CUDA driver that only queue work, without handing the interpreter to another thread meanwhile.

cuda-python gives the interpreter up in every call, and has to wait for it afterwards while other threads compute: for
a picture of a lane some 20 times. These calls return within microseconds, so they keep it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from engines.cuda.status_errors import error_for_status
from engines.errors import EngineUnavailable

_ADDRESS, _NUMBER, _HANDLE = ctypes.c_size_t, ctypes.c_uint, ctypes.c_void_p


class QuickCalls:
    """Launches and copies, for any thread on which the GPU is current.

    Args:
        library: the driver, by `ctypes.PyDLL`, which keeps the interpreter.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        copy = (_ADDRESS, _ADDRESS, _ADDRESS, _HANDLE)
        library.cuMemcpyHtoDAsync_v2.argtypes = library.cuMemcpyDtoHAsync_v2.argtypes = copy
        library.cuLaunchKernel.argtypes = (_HANDLE, *(_NUMBER,) * 7, _HANDLE, _HANDLE, _HANDLE)

    def launch(
        self, function: int, blocks: tuple[int, int], threads: tuple[int, int], values: Sequence[int], stream: int
    ) -> None:
        """Start a kernel whose arguments are integers and addresses.

        Each is passed as 64 bits, of which the kernel reads as many as its type has: the low ones come first.
        """
        count = len(values)
        held = (ctypes.c_longlong * count)(*values)
        first = ctypes.addressof(held)
        places = (ctypes.c_void_p * count)(*range(first, first + 8 * count, 8))
        self._call("cuLaunchKernel", function, *blocks, 1, *threads, 1, 0, stream, places, None)

    def copy_in(self, address: int, source: int, nbytes: int, stream: int) -> None:
        """Start a copy from page-locked memory; from other memory the interpreter would wait for it."""
        self._call("cuMemcpyHtoDAsync_v2", address, source, nbytes, stream)

    def copy_out(self, target: int, address: int, nbytes: int, stream: int) -> None:
        """Start a copy to page-locked memory; to other memory the interpreter would wait for the stream."""
        self._call("cuMemcpyDtoHAsync_v2", target, address, nbytes, stream)

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            raise error_for_status(function, runtime_name(self._name_of(status)))

    def _name_of(self, status: int) -> str:
        name = ctypes.c_char_p()
        self._library.cuGetErrorName(status, ctypes.byref(name))
        return (name.value or str(status).encode()).decode()


def open_quick_calls() -> QuickCalls:
    """Load the driver of this host.

    Raises:
        EngineUnavailable: there is none.
    """
    try:
        return QuickCalls(ctypes.PyDLL("libcuda.so.1"))
    except OSError as error:
        raise EngineUnavailable(f"no NVIDIA driver ({error})") from error


_OTHERWISE = {
    "CUDA_ERROR_OUT_OF_MEMORY": "cudaErrorMemoryAllocation",
    "CUDA_ERROR_LAUNCH_FAILED": "cudaErrorLaunchFailure",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "cudaErrorDevicesUnavailable",
    "CUDA_ERROR_DEINITIALIZED": "cudaErrorCudartUnloading",
    "CUDA_ERROR_NOT_INITIALIZED": "cudaErrorInitializationError",
}
"""Statuses that the runtime calls by other words."""


def runtime_name(status: str) -> str:
    """The name in cudaError_t of a status of the driver: CUDA_ERROR_ILLEGAL_ADDRESS is cudaErrorIllegalAddress."""
    words = status.removeprefix("CUDA_ERROR_").split("_")
    named = "cudaError" + "".join(word if word == "ECC" else word.capitalize() for word in words)
    return _OTHERWISE.get(status, named)
