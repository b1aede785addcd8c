"""The checks of `retouch doctor` for an NVIDIA GPU and its libraries; one line if there is no GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from engines.cuda.api import Cuda, open_cuda
from engines.cuda.gpu_detection import has_nvidia_gpu
from engines.cuda.onnxrt_cuda import start_onnxruntime
from engines.errors import EngineError
from engines.trt.library import TensorRt, load_tensorrt
from retouch.gpu_setup.choice import choose_packages, describe_gpus
from retouch.gpu_setup.host import GpuHost, this_host
from service.devices.gpu_cvcuda import load_cvcuda

INSTALL = "retouch install-gpu"


class GpuSources(NamedTuple):
    """The sources of the GPU's facts, replaceable in tests."""

    is_here: Callable[[], bool] = has_nvidia_gpu
    open_cuda: Callable[[], Cuda] = open_cuda
    load_tensorrt: Callable[[], TensorRt] = load_tensorrt
    start_onnxruntime: Callable[[], Any] = start_onnxruntime
    load_cvcuda: Callable[[], Any] = load_cvcuda
    ask_host: Callable[[], GpuHost] = this_host


class GpuFact(NamedTuple):
    """One line of the report: the part, whether it works, and details or the remedy."""

    name: str
    is_fine: bool
    detail: str


def gpu_facts(host: GpuSources) -> list[GpuFact]:
    """Check driver, GPU, TensorRT, ONNX Runtime and CV-CUDA; without a GPU nothing of CUDA is imported.

    A missing part is followed by the one command that installs it, or by the reason why nothing can be installed.
    """
    asked = host.ask_host()
    choice = choose_packages(asked)
    if not asked.driver.gpus:
        return [_without_gpu(choice.why_cpu, choice.to_do)]
    if not host.is_here():  # as in a container that has only the driver's files
        why = f"nvidia-smi shows {describe_gpus(asked)}, but /dev has no device of it"
        return [_without_gpu(why, "In a container, give it the GPU's devices, as with docker's --gpus all")]
    facts = [_check_device(host), _check_runtime(host), _check_cvcuda(host)]
    if choice.why_cpu:
        return [*facts, GpuFact("GPU packages", False, f"{choice.why_cpu}. {choice.to_do}")]
    missing = [fact.name for fact in facts if not fact.is_fine]
    if not missing:
        return facts
    remedy = f"missing: {', '.join(missing)}. One command installs what {describe_gpus(asked)} can have: {INSTALL}"
    return [*facts, GpuFact("GPU packages", False, remedy)]


def _without_gpu(why: str, to_do: str) -> GpuFact:
    detail = f"{why}; the processor computes"
    return GpuFact("GPU", not to_do, f"{detail}. {to_do}" if to_do else detail)


def _check_device(host: GpuSources) -> GpuFact:
    try:
        device = host.open_cuda().device
    except EngineError as error:
        return GpuFact("GPU", False, str(error))
    capability, gibibytes = ".".join(map(str, device.capability)), device.memory_bytes / 2**30
    cuda = f"{device.driver // 1000}.{device.driver % 1000 // 10}"
    return GpuFact("GPU", True, f"{device.name}, capability {capability}, {gibibytes:.0f} GiB, driver for CUDA {cuda}")


def _check_runtime(host: GpuSources) -> GpuFact:
    """Check for TensorRT or, on GPUs and hosts for which there is none, ONNX Runtime for CUDA."""
    try:
        return GpuFact("TensorRT", True, host.load_tensorrt().name)
    except EngineError as error:
        without = str(error)
    try:
        version = host.start_onnxruntime().__version__
    except EngineError:
        return GpuFact("TensorRT", False, without)
    return GpuFact("TensorRT", True, f"not installed; ONNX Runtime {version} for CUDA computes in its place")


def _check_cvcuda(host: GpuSources) -> GpuFact:
    try:
        return GpuFact("CV-CUDA", True, f"CV-CUDA {host.load_cvcuda().__version__}")
    except EngineError as error:
        return GpuFact("CV-CUDA", False, f"{error} (without it pictures are prepared on the processor)")
