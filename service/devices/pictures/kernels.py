"""The CUDA kernels for pictures, in cuda/*.cu: compiled by NVRTC when they are loaded, and launched by name."""

from __future__ import annotations

import ctypes
import importlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from engines.cuda.api import Cuda, Stream
from engines.cuda.quick_calls import QuickCalls, runtime_name
from engines.cuda.status_errors import error_for_status
from engines.errors import EngineFailed, EngineUnavailable

_BLOCK = (32, 8)
_FILES = ("scaling", "cutting", "seam", "pasting", "jpeg")
"""In the order in which they use each other."""
_KERNEL = re.compile(r'extern "C" __global__ void (\w+)\(([^)]*)\)')
_OPTIONS = (b"--fmad=false",)  # a fused product rounds once where a CPU rounds twice


class KernelLauncher(Protocol):
    """Starts kernels by name, each with a thread for every pixel of an area."""

    def launch(self, name: str, height: int, width: int, values: Sequence[int], stream: Stream) -> None:
        """Start a kernel.

        Args:
            name: the kernel's.
            height: of the area.
            width: of the area.
            values: its arguments in order; pointers are addresses on the GPU.
            stream: where it is queued.

        Raises:
            EngineFailed, DeviceLost: depending on the status of the launch.
        """


@cache
def kernel_source() -> str:
    """The source of all kernels, as one file."""
    folder = Path(__file__).parent / "cuda"
    return "\n".join((folder / f"{name}.cu").read_text("utf-8") for name in _FILES)


@cache
def kernel_arguments() -> Mapping[str, tuple[Any, ...]]:
    """The C types of each kernel's arguments, read from its source."""
    return {
        name: tuple(_argument_type(argument) for argument in arguments.split(","))
        for name, arguments in _KERNEL.findall(kernel_source())
    }


def blocks_for(height: int, width: int) -> tuple[int, int]:
    """The number of blocks of threads, across and down, that cover an area."""
    return -(-width // _BLOCK[0]), -(-height // _BLOCK[1])


class NvrtcKernels:
    """The compiled kernels on one GPU; may be used by several threads.

    Args:
        cuda: the GPU, current on this thread.
        quick_calls: start the kernels.

    Raises:
        EngineUnavailable: NVRTC, the compiler, is missing.
        EngineFailed: the kernels cannot be compiled or loaded.
    """

    def __init__(self, cuda: Cuda, quick_calls: QuickCalls) -> None:
        self._quick_calls = quick_calls
        try:
            self._driver: Any = importlib.import_module("cuda.bindings.driver")
            nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
            code = _compile(nvrtc, cuda.device.capability)
        except (ImportError, RuntimeError) as error:
            raise EngineUnavailable(f"NVRTC does not load ({error}); retouch install-gpu") from error
        self._module = self._call("cuModuleLoadData", code)
        self._functions = {
            name: int(self._call("cuModuleGetFunction", self._module, name.encode())) for name in kernel_arguments()
        }

    def launch(self, name: str, height: int, width: int, values: Sequence[int], stream: Stream) -> None:
        """Start a kernel, as `KernelLauncher`."""
        blocks = blocks_for(height, width)
        self._quick_calls.launch(self._functions[name], blocks, _BLOCK, values, int(stream.handle))

    def close(self) -> None:
        """Unload the kernels, which nobody uses any more; the GPU is current on this thread."""
        self._call("cuModuleUnload", self._module)

    def _call(self, function: str, *arguments: Any) -> Any:
        status, *results = getattr(self._driver, function)(*arguments)
        if int(status) != 0:
            raise error_for_status(function, runtime_name(getattr(status, "name", str(status))))
        return results[0] if results else None


def _argument_type(argument: str) -> Any:
    if "*" in argument:
        return ctypes.c_void_p
    return ctypes.c_long if "long" in argument.split() else ctypes.c_int


def _compile(nvrtc: Any, capability: tuple[int, int]) -> bytes:
    """Compile the kernels for a GPU; returns a cubin."""

    def call(function: str, *arguments: Any) -> Any:
        status, *results = getattr(nvrtc, function)(*arguments)
        if int(status) != 0:
            raise EngineFailed(f"{function}: {getattr(status, 'name', status)}{_compiler_log(nvrtc, arguments)}")
        return results[0] if results else None

    program = call("nvrtcCreateProgram", kernel_source().encode(), b"pictures.cu", 0, [], [])
    options = [b"--gpu-architecture=sm_%d%d" % capability, *_OPTIONS]
    call("nvrtcCompileProgram", program, len(options), options)
    code = bytes(call("nvrtcGetCUBINSize", program))
    call("nvrtcGetCUBIN", program, code)
    call("nvrtcDestroyProgram", program)
    return code


def _compiler_log(nvrtc: Any, arguments: Sequence[Any]) -> str:
    """The log of the compiler for the program that it was called for, if any."""
    if not arguments or isinstance(arguments[0], bytes):
        return ""
    status, nbytes = nvrtc.nvrtcGetProgramLogSize(arguments[0])
    if int(status) != 0 or nbytes <= 1:
        return ""
    text = bytes(nbytes)
    nvrtc.nvrtcGetProgramLog(arguments[0], text)
    return "; " + text.rstrip(b"\0").decode(errors="replace").strip()
