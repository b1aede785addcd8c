"""What `retouch doctor` says about an NVIDIA GPU and the libraries that use it; one line where there is none."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

from engines.cuda import Cuda, open_cuda
from engines.device import has_nvidia_gpu
from engines.errors import EngineError
from engines.trt_library import TensorRt, load_tensorrt


def is_installed(module: str) -> bool:
    """Whether a module could be imported; it is not."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


class GpuHost(NamedTuple):
    """Where the facts come from, so that tests can stand elsewhere."""

    is_here: Callable[[], bool] = has_nvidia_gpu
    open_cuda: Callable[[], Cuda] = open_cuda
    load_tensorrt: Callable[[], TensorRt] = load_tensorrt
    has_module: Callable[[str], bool] = is_installed


class GpuFact(NamedTuple):
    """One line: what, whether it is fine, and the detail or the remedy."""

    name: str
    is_fine: bool
    detail: str


def gpu_facts(host: GpuHost) -> list[GpuFact]:
    """GPU, driver, TensorRT and CV-CUDA: what the server uses. Nothing of CUDA is imported on a host without a GPU."""
    if not host.is_here():
        return [GpuFact("GPU", True, "no NVIDIA GPU here; the processor computes")]
    return [
        _device(host),
        _tensorrt(host),
        _optional(host, "CV-CUDA", "cvcuda", "pictures are prepared on the processor"),
    ]


def _device(host: GpuHost) -> GpuFact:
    try:
        device = host.open_cuda().device
    except EngineError as error:
        return GpuFact("GPU", False, str(error))
    capability, gibibytes = ".".join(map(str, device.capability)), device.memory_bytes / 2**30
    cuda = f"{device.driver // 1000}.{device.driver % 1000 // 10}"
    return GpuFact("GPU", True, f"{device.name}, capability {capability}, {gibibytes:.0f} GiB, driver for CUDA {cuda}")


def _tensorrt(host: GpuHost) -> GpuFact:
    try:
        return GpuFact("TensorRT", True, host.load_tensorrt().name)
    except EngineError as error:
        return GpuFact("TensorRT", False, str(error))


def _optional(host: GpuHost, title: str, module: str, without: str) -> GpuFact:
    if host.has_module(module):
        return GpuFact(title, True, "installed")
    return GpuFact(title, False, f"not installed: {without}; pip install -e '.[gpu]'")
