"""The checks of `retouch doctor` for an NVIDIA GPU and its libraries; one line if there is no GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from engines.cuda.api import Cuda, open_cuda
from engines.cuda.gpu_detection import has_nvidia_gpu
from engines.errors import EngineError
from engines.trt.library import TensorRt, load_tensorrt
from service.devices.gpu_cvcuda import load_cvcuda


class GpuSources(NamedTuple):
    """The sources of the GPU's facts, replaceable in tests."""

    is_here: Callable[[], bool] = has_nvidia_gpu
    open_cuda: Callable[[], Cuda] = open_cuda
    load_tensorrt: Callable[[], TensorRt] = load_tensorrt
    load_cvcuda: Callable[[], Any] = load_cvcuda


class GpuFact(NamedTuple):
    """One line of the report: the part, whether it works, and details or the remedy."""

    name: str
    is_fine: bool
    detail: str


def gpu_facts(host: GpuSources) -> list[GpuFact]:
    """Check GPU, driver, TensorRT and CV-CUDA; on a host without a GPU nothing of CUDA is imported."""
    if not host.is_here():
        return [GpuFact("GPU", True, "no NVIDIA GPU here; the processor computes")]
    return [_check_device(host), _check_tensorrt(host), _check_cvcuda(host)]


def _check_device(host: GpuSources) -> GpuFact:
    try:
        device = host.open_cuda().device
    except EngineError as error:
        return GpuFact("GPU", False, str(error))
    capability, gibibytes = ".".join(map(str, device.capability)), device.memory_bytes / 2**30
    cuda = f"{device.driver // 1000}.{device.driver % 1000 // 10}"
    return GpuFact("GPU", True, f"{device.name}, capability {capability}, {gibibytes:.0f} GiB, driver for CUDA {cuda}")


def _check_tensorrt(host: GpuSources) -> GpuFact:
    try:
        return GpuFact("TensorRT", True, host.load_tensorrt().name)
    except EngineError as error:
        return GpuFact("TensorRT", False, str(error))


def _check_cvcuda(host: GpuSources) -> GpuFact:
    try:
        return GpuFact("CV-CUDA", True, f"CV-CUDA {host.load_cvcuda().__version__}")
    except EngineError as error:
        return GpuFact("CV-CUDA", False, f"{error} (without it pictures are prepared on the processor)")
