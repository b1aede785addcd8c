"""Decodes baseline JPEGs in the decoder that NVIDIA's data-centre GPUs have in hardware, by nvJPEG.

The hardware gives planes of luma and subsampled chroma; own kernels enlarge chroma and convert to RGB by libjpeg's
arithmetic (hardware_jpeg_kernels.py), because nvJPEG's conversion differs from libjpeg's by up to some levels. nvJPEG
is used through ctypes: https://docs.nvidia.com/cuda/nvjpeg.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu.hardware_jpeg_kernels import JpegKernels
from engines.cuda.api import Cuda, DeviceBuffer, PinnedBuffer, Stream
from engines.errors import EngineFailed, EngineOutOfMemory, EngineUnavailable

_LIBRARIES = ("libnvjpeg.so.13", "libnvjpeg.so.12")
_HARDWARE, _PLANES = 3, 1  # NVJPEG_BACKEND_HARDWARE, NVJPEG_OUTPUT_YUV
_CHANNELS = 4
_OUT_OF_MEMORY, _EXECUTION_FAILED, _INTERNAL = 5, 6, 8
_ALIGNED = 256


class JpegPlanes(NamedTuple):
    """The planes of a JPEG: its size, and how many pixels one value of chroma covers, across and down (1 or 2)."""

    height: int
    width: int
    across: int
    down: int

    @property
    def chroma(self) -> tuple[int, int]:
        """Height and width of a plane of chroma."""
        return -(-self.height // self.down), -(-self.width // self.across)


class EncodedJpeg(NamedTuple):
    """A file in host memory, and where its pixels go: page-locked, H×W×3 bytes."""

    address: int
    nbytes: int
    planes: JpegPlanes
    target: int


class _Image(ctypes.Structure):
    """nvjpegImage_t."""

    _fields_ = (("channel", ctypes.c_void_p * _CHANNELS), ("pitch", ctypes.c_size_t * _CHANNELS))


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED


@dataclass(frozen=True, slots=True)
class NvJpeg:
    """The library, with a handle for the hardware decoder; its functions may be called from several threads."""

    library: Any
    handle: Any

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of the library.

        Raises:
            EngineOutOfMemory, DeviceLost, EngineFailed: depending on the status that it returns.
        """
        _check(function, getattr(self.library, function)(*arguments))

    def close(self) -> None:
        self.library.nvjpegDestroy(self.handle)


def _check(function: str, status: int) -> None:
    if status == 0:
        return
    if status == _OUT_OF_MEMORY:
        raise EngineOutOfMemory(f"{function}: out of memory")
    if status in (_EXECUTION_FAILED, _INTERNAL):
        raise EngineFailed(f"{function}: failed with status {status}")
    raise EngineFailed(f"{function}: refused with status {status}")


def open_nvjpeg() -> NvJpeg:
    """Load nvJPEG and open the hardware decoder of the current device.

    Raises:
        EngineUnavailable: the library is not installed, or the GPU has no such decoder.
    """
    library = _load_library()
    handle = ctypes.c_void_p()
    status = library.nvjpegCreateEx(_HARDWARE, None, None, 0, ctypes.byref(handle))
    if status != 0:
        raise EngineUnavailable(f"this GPU has no JPEG decoder in hardware (nvJPEG status {status})")
    return NvJpeg(library, handle)


def _load_library() -> Any:
    found = [
        path / "lib" / name for path in _package_folders() for name in _LIBRARIES if (path / "lib" / name).exists()
    ]
    loaded = next(filter(None, map(_try_to_load, (*map(str, found), *_LIBRARIES))), None)
    if loaded is None:
        raise EngineUnavailable("nvJPEG does not load; pip install nvidia-nvjpeg")
    return loaded


def _try_to_load(name: str) -> Any:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _package_folders() -> list[Path]:
    """Where NVIDIA's wheels put their libraries: nvidia/cu13, nvidia/nvjpeg."""
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else [Path(root) for root in spec.submodule_search_locations or ()]
    return [root / folder for root in roots for folder in ("cu13", "nvjpeg")]


def _urgent_stream(cuda: Cuda) -> Stream:
    """Create a stream whose work goes before that of other streams where both could run."""
    _, highest = cuda.call_runtime("cudaDeviceGetStreamPriorityRange")
    return Stream(cuda, cuda.call_runtime("cudaStreamCreateWithPriority", cuda.runtime.cudaStreamNonBlocking, highest))


class JpegLane:
    """A decoder with a stream and memory of its own; one thread uses it. Several lanes keep the hardware busy.

    Args:
        cuda: the GPU, current on this thread.
        nvjpeg: the library.
        kernels: the conversion to RGB.
        most: the largest number of files in one call.
    """

    def __init__(self, cuda: Cuda, nvjpeg: NvJpeg, kernels: JpegKernels, most: int = 8) -> None:
        self._cuda, self._nvjpeg, self._kernels, self.most = cuda, nvjpeg, kernels, most
        self._resources = ExitStack()
        self._stream = self._resources.enter_context(closing(_urgent_stream(cuda)))
        self._states: dict[int, ctypes.c_void_p] = {}
        self._memory = DeviceBuffer(cuda, 0, 0)

    def decode(self, files: Sequence[EncodedJpeg]) -> None:
        """Decode up to `most` files; their pixels are in their targets when it returns.

        Raises:
            EngineOutOfMemory, DeviceLost, EngineFailed: no pixels are valid; which file is to blame is not known.
        """
        offsets, nbytes = _place(files)
        self._reserve(nbytes)
        images = (_Image * len(files))()
        for image, file, offset in zip(images, files, offsets, strict=True):
            self._point_at_planes(image, file.planes, self._memory.address + offset)
        data = (ctypes.c_void_p * len(files))(*(file.address for file in files))
        lengths = (ctypes.c_size_t * len(files))(*(file.nbytes for file in files))
        stream = ctypes.c_void_p(int(self._stream.handle))
        try:
            self._nvjpeg.call(
                "nvjpegDecodeBatched", self._nvjpeg.handle, self._state(len(files)), data, lengths, images, stream
            )
            for image, file, offset in zip(images, files, offsets, strict=True):
                pixels = DeviceBuffer(
                    self._cuda, self._memory.address + offset, 3 * file.planes.height * file.planes.width
                )
                channels, pitches = list(image.channel), list(image.pitch)
                self._kernels.to_rgb(file.planes, channels[:3], pitches[:3], pixels.address, self._stream)
                target = PinnedBuffer(self._cuda, file.target, pixels.nbytes)
                self._cuda.copy_out(target, pixels, pixels.nbytes, self._stream)
        finally:
            self._stream.synchronise()

    def close(self) -> None:
        """Free the memory and the states."""
        for state in self._states.values():
            self._nvjpeg.library.nvjpegJpegStateDestroy(state)
        self._states.clear()
        self._memory.close()
        self._resources.close()

    def _point_at_planes(self, image: _Image, planes: JpegPlanes, address: int) -> None:
        address += _aligned(3 * planes.height * planes.width)
        (height, width), (chroma_height, chroma_width) = planes[:2], planes.chroma
        for number, (rows, columns) in enumerate(((height, width), *[(chroma_height, chroma_width)] * 2)):
            pitch = _aligned(columns)
            image.channel[number], image.pitch[number] = address, pitch
            address += _padded_rows(rows) * pitch

    def _reserve(self, nbytes: int) -> None:
        if self._memory.nbytes < nbytes:
            self._memory.close()
            self._memory = DeviceBuffer(self._cuda, 0, 0)
            self._memory = self._cuda.device_buffer(nbytes)

    def _state(self, count: int) -> ctypes.c_void_p:
        """The state for batches of so many files; each size has its own, as changing the size is slow."""
        if count not in self._states:
            state = ctypes.c_void_p()
            self._nvjpeg.call("nvjpegJpegStateCreate", self._nvjpeg.handle, ctypes.byref(state))
            self._states[count] = state
            self._nvjpeg.call("nvjpegDecodeBatchedInitialize", self._nvjpeg.handle, state, count, 1, _PLANES)
        return self._states[count]


def _padded_rows(rows: int) -> int:
    """Rows of a plane with room for whole blocks, should the hardware write them."""
    return -(-rows // 16) * 16


def _place(files: Sequence[EncodedJpeg]) -> tuple[list[int], int]:
    """Offsets of each file's pixels and planes in device memory, and the memory of all."""
    offsets, total = [], 0
    for file in files:
        offsets.append(total)
        (height, width, *_), (chroma_height, chroma_width) = file.planes, file.planes.chroma
        total += _aligned(3 * height * width) + _padded_rows(height) * _aligned(width)
        total += 2 * _padded_rows(chroma_height) * _aligned(chroma_width)
    return offsets, total
