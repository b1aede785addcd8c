"""What `retouch doctor` says about an NVIDIA GPU and the libraries that use it; one line where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from engines.cuda.api import Cuda, open_cuda
from engines.cuda.gpu_detection import has_nvidia_gpu
from engines.errors import EngineError
from engines.trt.library import TensorRt, load_tensorrt
from service.devices.gpu_cvcuda import load_cvcuda


class GpuHost(NamedTuple):
    """Where the facts come from, so that tests can stand elsewhere."""

    is_here: Callable[[], bool] = has_nvidia_gpu
    open_cuda: Callable[[], Cuda] = open_cuda
    load_tensorrt: Callable[[], TensorRt] = load_tensorrt
    load_cvcuda: Callable[[], Any] = load_cvcuda


class GpuFact(NamedTuple):
    """One line: what, whether it is fine, and the detail or the remedy."""

    name: str
    is_fine: bool
    detail: str


def gpu_facts(host: GpuHost) -> list[GpuFact]:
    """GPU, driver, TensorRT and CV-CUDA: what the server uses. Nothing of CUDA is imported on a host without a GPU."""
    if not host.is_here():
        return [GpuFact("GPU", True, "no NVIDIA GPU here; the processor computes")]
    return [_device(host), _tensorrt(host), _cvcuda(host)]


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


def _cvcuda(host: GpuHost) -> GpuFact:
    try:
        return GpuFact("CV-CUDA", True, f"CV-CUDA {host.load_cvcuda().__version__}")
    except EngineError as error:
        return GpuFact("CV-CUDA", False, f"{error} (without it pictures are prepared on the processor)")
