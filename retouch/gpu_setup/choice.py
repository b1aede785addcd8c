"""The choice of GPU packages for a host, from its facts alone: a pure function and the table behind it.

The pins are here and not in requirements/constraints.txt, because the packages depend on the driver, which no
environment marker of a requirement can express.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from retouch.gpu_setup.host import NVIDIA_INDEX, Gpu, GpuHost

_MIN_DRIVERS = ((580, 13), (525, 12))
"""The oldest driver branch for each major version of CUDA; packages for 12 run on newer drivers too."""
_MIN_CAPABILITY = (7, 5)
"""Oldest compute capability, Turing: CUDA 13 dropped older GPUs, and TensorRT-RTX supports none."""
_IGNORED = (
    "it is too old, the packages begin at 7.5 (Turing); name the others in CUDA_VISIBLE_DEVICES, else a server starts "
    "a process on it too"
)
_RTX_GPUS = frozenset({(7, 5), (8, 6), (8, 9), (12, 0), (12, 1)})
"""The compute capabilities in TensorRT-RTX's support matrix: no data-centre GPU such as A100 (8.0) or H100 (9.0)."""

_FOR_ANY_CUDA = ("nvidia-ml-py==13.615.71", "nvtx==0.2.16")
_FOR_CUDA = {
    13: ("cuda-python==13.4.4", "cvcuda-cu13==0.19.0", *_FOR_ANY_CUDA),
    12: ("cuda-python==12.9.10", "cvcuda-cu12==0.19.0", *_FOR_ANY_CUDA),
}
_TENSORRT = "11.4.0.106"
_TENSORRT_RTX = "1.7.1.116"
_ONNXRUNTIME = {13: "1.31.1", 12: "1.26.0"}
_ONNXRUNTIME_ON_310 = "1.23.2"
"""The newest version for Python 3.10. It needs CUDA 12 and installs it, whatever CUDA the other packages are for."""


class RuntimeCandidate(NamedTuple):
    """One candidate for the runtime that computes on the GPU.

    engine: the engine that it brings, as in `--engine`.
    name: the runtime, for people.
    requirements: the packages to install; empty if nothing is to be done, or if a folder is linked instead.
    source: a package index to use with the configured one, or a folder of wheels.
    folder: the module of a system installation, to be linked into this environment.
    gigabytes: approximate size of the download; 0 if unknown or none.
    replaces_onnxruntime: whether its packages overwrite those of the CPU's ONNX Runtime, which have the same name.
    """

    engine: Literal["trt", "onnxrt-cuda"]
    name: str
    requirements: tuple[str, ...] = ()
    source: str = ""
    folder: Path | None = None
    gigabytes: float = 0.0
    replaces_onnxruntime: bool = False

    @property
    def is_there(self) -> bool:
        """Whether its runtime can be imported already."""
        return not self.requirements and self.folder is None


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """The packages for a host.

    why_cpu: why the host computes on the CPU; empty if it can use a GPU.
    to_do: what the user can do about that; empty if nothing, as on a host without a GPU.
    cuda: the major version of CUDA that the packages are for.
    packages: the packages that every engine on a GPU needs.
    candidates: the candidates for the runtime, best first; the first that works is enough.
    passed_over: pairs of (name, reason) for better runtimes that are no candidates, and for GPUs that are ignored.
    """

    why_cpu: str = ""
    to_do: str = ""
    cuda: int = 0
    packages: tuple[str, ...] = ()
    candidates: tuple[RuntimeCandidate, ...] = ()
    passed_over: tuple[tuple[str, str], ...] = ()


def choose_packages(host: GpuHost) -> GpuChoice:
    """Return the packages for a host, or the reason why it computes on the CPU."""
    if not host.driver.gpus:
        return _without_driver(host)
    old = [gpu for gpu in host.driver.gpus if gpu.capability < _MIN_CAPABILITY]
    new = tuple(gpu for gpu in host.driver.gpus if gpu not in old)
    if not new:
        return GpuChoice(f"{_describe(old[0])} is too old: the packages begin at 7.5 (Turing)", "use a newer GPU")
    newest = next((cuda for oldest, cuda in _MIN_DRIVERS if host.driver.version[0] >= oldest), 0)
    if not newest:
        return GpuChoice(
            f"the driver {_dotted(host.driver.version)} is too old: CUDA 12 needs 525, CUDA 13 needs 580",
            "update the NVIDIA driver to 580 or later",
        )
    if not host.system.startswith("linux"):
        return GpuChoice(f"the GPU packages are for Linux, this is {host.system}", "use Linux, or WSL on Windows")
    candidates = list(_candidates(replace(host, driver=host.driver._replace(gpus=new)), newest))
    usable = tuple(candidate for candidate in candidates if isinstance(candidate, RuntimeCandidate))
    ignored = tuple((_describe(gpu), _IGNORED) for gpu in dict.fromkeys(old))
    passed_over = (*ignored, *(reason for reason in candidates if not isinstance(reason, RuntimeCandidate)))
    return GpuChoice(cuda=newest, packages=_FOR_CUDA[newest], candidates=usable, passed_over=passed_over)


def without_first(choice: GpuChoice, why: str) -> GpuChoice:
    """Return the choice after its first candidate failed."""
    failed, *others = choice.candidates
    return replace(choice, candidates=tuple(others), passed_over=(*choice.passed_over, (failed.name, why)))


def describe_gpus(host: GpuHost) -> str:
    """Name the GPUs and the driver: `2 × NVIDIA L4 (8.9), driver 580.65.6`."""
    names: dict[str, int] = {}
    for gpu in host.driver.gpus:
        names[_describe(gpu)] = names.get(_describe(gpu), 0) + 1
    shown = ", ".join(name if count == 1 else f"{count} × {name}" for name, count in names.items())
    return f"{shown}, driver {_dotted(host.driver.version)}"


def _without_driver(host: GpuHost) -> GpuChoice:
    if host.driver.problem:
        return GpuChoice(
            f"an NVIDIA GPU cannot be used: {host.driver.problem}",
            "install or repair the NVIDIA driver, 580 or later; in a container, NVIDIA's container toolkit",
        )
    return GpuChoice("no NVIDIA driver here")


def _candidates(host: GpuHost, cuda: int) -> Iterator[RuntimeCandidate | tuple[str, str]]:
    """Yield the candidates, best first; for a candidate that this host cannot use, (name, reason) in its place."""
    if host.tensorrt and not ("RTX" in host.tensorrt and _unknown_to_rtx(host)):
        yield RuntimeCandidate("trt", host.tensorrt)
        return
    yield _full_tensorrt(host, cuda)
    yield _tensorrt_rtx(host, cuda)
    yield _onnxruntime(host, cuda)


def _full_tensorrt(host: GpuHost, cuda: int) -> RuntimeCandidate | tuple[str, str]:
    if host.system_tensorrt is not None:
        version, folder = host.system_tensorrt
        return RuntimeCandidate("trt", f"TensorRT {version} of the system", folder=folder)
    if not host.nvidia_index:
        return "TensorRT", f"NVIDIA's package index ({NVIDIA_INDEX}) does not answer, and the system has none"
    packages = tuple(f"tensorrt-cu{cuda}-{part}=={_TENSORRT}" for part in ("libs", "bindings"))
    return RuntimeCandidate("trt", "TensorRT", packages, source=host.nvidia_index, gigabytes=2.0)


def _tensorrt_rtx(host: GpuHost, cuda: int) -> RuntimeCandidate | tuple[str, str]:
    if host.machine not in {"x86_64", "AMD64"}:
        return "TensorRT-RTX", f"PyPI has it for x86-64 only, this is {host.machine}"
    if (other := _unknown_to_rtx(host)) is not None:
        return "TensorRT-RTX", f"it does not support {_describe(other)}"
    packages = tuple(f"tensorrt-rtx-cu{cuda}-{part}=={_TENSORRT_RTX}" for part in ("libs", "bindings"))
    return RuntimeCandidate("trt", "TensorRT-RTX", packages, gigabytes=0.6)


def _unknown_to_rtx(host: GpuHost) -> Gpu | None:
    return next((gpu for gpu in host.driver.gpus if gpu.capability not in _RTX_GPUS), None)


def _onnxruntime(host: GpuHost, cuda: int) -> RuntimeCandidate | tuple[str, str]:
    if host.machine not in {"x86_64", "AMD64"}:
        return "ONNX Runtime for CUDA", f"PyPI has it for x86-64 only, this is {host.machine}"
    version = _ONNXRUNTIME[cuda] if host.python >= (3, 11) else _ONNXRUNTIME_ON_310
    package = f"onnxruntime-gpu[cuda,cudnn]=={version}"
    return RuntimeCandidate(
        "onnxrt-cuda", "ONNX Runtime for CUDA", (package,), gigabytes=1.6, replaces_onnxruntime=True
    )


def _describe(gpu: Gpu) -> str:
    return f"{gpu.name} ({gpu.capability[0]}.{gpu.capability[1]})"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
