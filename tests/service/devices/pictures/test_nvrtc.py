# ruff: noqa: N802 -- the names are CUDA's
"""The compiler and the launches, with `cuda.bindings.nvrtc` and `cuda.bindings.driver` played."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from engines.cuda.api import Cuda
from engines.cuda.gpu_detection import has_nvidia_gpu
from engines.cuda.quick_calls import QuickCalls
from engines.errors import DeviceLost, EngineFailed, EngineOutOfMemory, EngineUnavailable
from service.devices.pictures.kernels import NvrtcKernels, kernel_arguments, kernel_source
from service.devices.pictures.nvjpeg import open_nvjpeg


class Status(int):
    """A status with a name, as of an enumeration of CUDA's."""

    def __new__(cls, value: int, name: str = "") -> Status:
        made = super().__new__(cls, value)
        made.name = name
        return made

    name: str


OK = Status(0)


class Nvrtc(ModuleType):
    def __init__(self) -> None:
        super().__init__("cuda.bindings.nvrtc")
        self.source, self.options = b"", [b""]
        self.status = OK

    def nvrtcCreateProgram(self, source: bytes, *_: Any) -> tuple[Any, int]:
        self.source = source
        return OK, 7

    def nvrtcCompileProgram(self, _program: int, count: int, options: list[bytes]) -> tuple[Any]:
        assert count == len(options)
        self.options = options
        return (self.status,)

    def nvrtcGetProgramLogSize(self, _program: int) -> tuple[Any, int]:
        return OK, 9

    def nvrtcGetProgramLog(self, _program: int, log: bytes) -> tuple[Any]:
        ctypes.memmove(log, b"line 3: x", 9)
        return (OK,)

    def nvrtcGetCUBINSize(self, _program: int) -> tuple[Any, int]:
        return OK, 16

    def nvrtcGetCUBIN(self, _program: int, code: bytes) -> tuple[Any]:
        ctypes.memmove(code, b"0123456789abcdef", 16)
        return (OK,)

    def nvrtcDestroyProgram(self, _program: int) -> tuple[Any]:
        return (OK,)


class Driver(ModuleType):
    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.code, self.status, self.unloaded = b"", OK, 0
        self.functions: list[str] = []

    def cuModuleLoadData(self, code: bytes) -> tuple[Any, int]:
        self.code = code
        return OK, 1

    def cuModuleUnload(self, module: int) -> tuple[Any]:
        self.unloaded = module
        return (OK,)

    def cuModuleGetFunction(self, _module: int, name: bytes) -> tuple[Any, int]:
        self.functions.append(name.decode())
        return OK, len(self.functions)


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch) -> Nvrtc:
    played = Nvrtc()
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", played)
    return played


class FakeDriverLibrary:
    """The driver as ctypes loads it: keeps what it is called with, and reads arguments by `types`."""

    def __init__(self) -> None:
        self.status = ""
        self.types: tuple[Any, ...] = ()
        self.launches: list[tuple[Any, ...]] = []
        self.copies: list[tuple[Any, ...]] = []
        self.cuGetErrorName = self._named
        self.cuMemcpyHtoDAsync_v2 = Function(lambda *values: self._copied("in", *values))
        self.cuMemcpyDtoHAsync_v2 = Function(lambda *values: self._copied("out", *values))
        self.cuLaunchKernel = Function(self._launched)

    def _launched(self, *arguments: Any) -> int:
        *known, places, extra = arguments
        assert extra is None
        values = [kind.from_address(place).value for kind, place in zip(self.types, places, strict=False)]
        self.launches.append((*known, values))
        return int(bool(self.status))

    def _copied(self, *arguments: Any) -> int:
        self.copies.append(arguments)
        return int(bool(self.status))

    def _named(self, _status: int, name: Any) -> int:
        name._obj.value = self.status.encode()
        return 0


class Function:
    """A function of a library, which can be given the types of its arguments."""

    argtypes: tuple[Any, ...] = ()

    def __init__(self, called: Callable[..., int]) -> None:
        self.called = called

    def __call__(self, *arguments: Any) -> int:
        return self.called(*arguments)


@pytest.fixture
def library() -> FakeDriverLibrary:
    return FakeDriverLibrary()


@pytest.fixture
def quick_calls(library: FakeDriverLibrary) -> QuickCalls:
    return QuickCalls(library)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    played = Driver()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", played)
    return played


def test_the_kernels_are_compiled_for_the_gpu_without_fused_products(
    nvrtc: Nvrtc, driver: Driver, cuda: Cuda, quick_calls: QuickCalls
) -> None:
    NvrtcKernels(cuda, quick_calls)
    assert nvrtc.source == kernel_source().encode()
    assert nvrtc.options == [b"--gpu-architecture=sm_89", b"--fmad=false"]
    assert driver.code == b"0123456789abcdef"


@pytest.mark.usefixtures("nvrtc")
def test_a_launch_covers_the_area_with_what_the_kernel_takes(
    driver: Driver, cuda: Cuda, library: FakeDriverLibrary, quick_calls: QuickCalls
) -> None:
    stream, kernels = cuda.stream(), NvrtcKernels(cuda, quick_calls)
    library.types = kernel_arguments()["seam_start"]
    kernels.launch("seam_start", 17, 33, [1 << 40, -4, 3, 4, 17, -33], stream)
    ((function, *shape, shared, handle, values),) = library.launches
    assert driver.functions[function - 1] == "seam_start"
    assert (shape, shared, handle) == ([2, 3, 1, 32, 8, 1], 0, stream.handle)
    assert values == [1 << 40, -4, 3, 4, 17, -33]


def test_page_locked_memory_is_copied_on_the_stream(library: FakeDriverLibrary, quick_calls: QuickCalls) -> None:
    quick_calls.copy_in(1 << 40, 2 << 40, 3 << 32, 7)
    quick_calls.copy_out(2 << 40, 1 << 40, 5, 7)
    assert library.copies == [("in", 1 << 40, 2 << 40, 3 << 32, 7), ("out", 2 << 40, 1 << 40, 5, 7)]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("CUDA_ERROR_OUT_OF_MEMORY", EngineOutOfMemory),
        ("CUDA_ERROR_ILLEGAL_ADDRESS", DeviceLost),
        ("CUDA_ERROR_LAUNCH_FAILED", DeviceLost),
        ("CUDA_ERROR_ECC_UNCORRECTABLE", DeviceLost),
        ("CUDA_ERROR_DEVICE_UNAVAILABLE", DeviceLost),
        ("CUDA_ERROR_DEINITIALIZED", DeviceLost),
        ("CUDA_ERROR_NOT_INITIALIZED", EngineUnavailable),
        ("CUDA_ERROR_INVALID_VALUE", EngineFailed),
    ],
)
@pytest.mark.usefixtures("nvrtc", "driver")
def test_a_status_of_a_launch_becomes_an_error(
    library: FakeDriverLibrary, quick_calls: QuickCalls, cuda: Cuda, name: str, error: type[Exception]
) -> None:
    kernels = NvrtcKernels(cuda, quick_calls)
    library.status = name
    with pytest.raises(error) as raised:
        kernels.launch("seam_start", 1, 1, [0] * 6, cuda.stream())
    assert type(raised.value) is error


@pytest.mark.usefixtures("nvrtc")
def test_closed_kernels_are_unloaded(driver: Driver, cuda: Cuda, quick_calls: QuickCalls) -> None:
    NvrtcKernels(cuda, quick_calls).close()
    assert driver.unloaded == 1


def test_a_source_that_does_not_compile_is_shown_with_the_compilers_words(
    nvrtc: Nvrtc, driver: Driver, cuda: Cuda, quick_calls: QuickCalls
) -> None:
    nvrtc.status = Status(6, "NVRTC_ERROR_COMPILATION")
    with pytest.raises(EngineFailed, match="NVRTC_ERROR_COMPILATION; line 3: x"):
        NvrtcKernels(cuda, quick_calls)


def test_without_the_compiler_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, cuda: Cuda, quick_calls: QuickCalls
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(EngineUnavailable, match="retouch install-gpu"):
        NvrtcKernels(cuda, quick_calls)


def test_without_nvjpeg_or_its_hardware_the_reason_is_named() -> None:
    if has_nvidia_gpu():
        pytest.skip("this host may have both")
    with pytest.raises(EngineUnavailable, match=r"nvJPEG does not load|no JPEG decoder in hardware"):
        open_nvjpeg()


def test_every_kernel_has_arguments() -> None:
    assert set(kernel_arguments()) == {
        "cut_picture", "cut_mask", "seam_start", "seam_forward", "seam_backward", "paste", "ycc_to_rgb",
    }  # fmt: skip
