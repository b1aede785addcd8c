"""The kernels of service/devices/pictures, compiled by g++ and run on a CPU, thread after thread, in host memory."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from engines.cuda.api import Stream
from service.devices.pictures.kernels import blocks_for, kernel_arguments, kernel_source
from tests.fakes.cuda import FakeRuntime

COMPILER = shutil.which("g++")
_THREADS = Path(__file__).with_name("cuda_threads.h")


def compile_kernels(folder: Path) -> ctypes.CDLL:
    """Compile the kernels' own source to a library in a folder; a second of work."""
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    callable_ones = "".join(f"CALLABLE({name})\n" for name in kernel_arguments())
    source.write_text(f'#include "{_THREADS}"\n{kernel_source()}\n{callable_ones}')
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-Wall", "-Werror", "-Wno-unused-function", "-shared", "-fPIC"]
    subprocess.run([str(COMPILER), *flags, "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library))


class EmulatedKernels:
    """Kernels that are queued on a runtime's streams, and run when a stream gets there.

    Args:
        library: compiled by `compile_kernels`.
        runtime: whose streams they are queued on.
    """

    def __init__(self, library: ctypes.CDLL, runtime: FakeRuntime) -> None:
        self._library = library
        self._runtime = runtime
        self.fail: dict[str, Exception] = {}
        """Errors that the next launch of a kernel of that name raises."""
        self.launched: list[str] = []

    def launch(self, name: str, height: int, width: int, values: Sequence[int], stream: Stream) -> None:
        if (error := self.fail.pop(name, None)) is not None:
            raise error
        types = kernel_arguments()[name]
        held: list[Any] = [kind(value) for kind, value in zip(types, values, strict=True)]
        packed = (ctypes.c_void_p * len(held))(*(ctypes.addressof(one) for one in held))
        across, down = blocks_for(height, width)
        self.launched.append(name)
        self._runtime.enqueue(int(stream.handle), partial(self._run, name, across, down, packed, held))

    def _run(self, name: str, across: int, down: int, packed: Any, _held: list[Any]) -> None:
        getattr(self._library, f"run_{name}")(across, down, packed)
