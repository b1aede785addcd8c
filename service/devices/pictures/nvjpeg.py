"""Decodes baseline JPEGs in the decoder that NVIDIA's data-centre GPUs have in hardware, by nvJPEG.

The hardware gives planes of luma and subsampled chroma; own kernels do the rest by libjpeg's arithmetic (cuda/jpeg.cu),
because nvJPEG's conversion differs from libjpeg's by up to some levels. nvImageCodec uses the same hardware, with that
conversion. nvJPEG is used through ctypes: https://docs.nvidia.com/cuda/nvjpeg.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.cuda.api import Cuda, Stream
from engines.cuda.quick_calls import QuickCalls
from engines.errors import EngineFailed, EngineOutOfMemory, EngineUnavailable
from service.devices.pictures.kernels import KernelLauncher
from service.devices.pictures.lane import EncodedJpeg, PictureLane

_LIBRARIES = ("libnvjpeg.so.13", "libnvjpeg.so.12")
_HARDWARE, _PLANES = 3, 1  # NVJPEG_BACKEND_HARDWARE, NVJPEG_OUTPUT_YUV
_CHANNELS = 4
_OUT_OF_MEMORY = 5


class _Image(ctypes.Structure):
    """nvjpegImage_t."""

    _fields_ = (("channel", ctypes.c_void_p * _CHANNELS), ("pitch", ctypes.c_size_t * _CHANNELS))


@dataclass(frozen=True, slots=True)
class NvJpeg:
    """The library, with a handle for the hardware decoder; its functions may be called from several threads."""

    library: Any
    handle: Any

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of the library.

        Raises:
            EngineOutOfMemory, EngineFailed: depending on the status that it returns.
        """
        status = getattr(self.library, function)(*arguments)
        if status == _OUT_OF_MEMORY:
            raise EngineOutOfMemory(f"{function}: out of memory")
        if status != 0:
            raise EngineFailed(f"{function}: status {status}")

    def close(self) -> None:
        self.library.nvjpegDestroy(self.handle)


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


class NvJpegDecoder:
    """The hardware decoder for one stream; one thread uses it.

    Args:
        nvjpeg: the library.
    """

    def __init__(self, nvjpeg: NvJpeg) -> None:
        self._nvjpeg = nvjpeg
        self._states: dict[int, ctypes.c_void_p] = {}

    def start(self, files: Sequence[EncodedJpeg], stream: Stream) -> None:
        """Queue the decoding of files, as `PlanesDecoder`."""
        images = (_Image * len(files))()
        for image, file in zip(images, files, strict=True):
            for number, plane in enumerate(file.channels):
                image.channel[number], image.pitch[number] = plane.address, plane.pitch
        data = (ctypes.c_void_p * len(files))(*(file.address for file in files))
        lengths = (ctypes.c_size_t * len(files))(*(file.nbytes for file in files))
        queue = ctypes.c_void_p(int(stream.handle))
        nvjpeg, state = self._nvjpeg, self._state(len(files))
        nvjpeg.call("nvjpegDecodeBatched", nvjpeg.handle, state, data, lengths, images, queue)

    def close(self) -> None:
        """Free the states."""
        for state in self._states.values():
            self._nvjpeg.library.nvjpegJpegStateDestroy(state)
        self._states.clear()

    def _state(self, count: int) -> ctypes.c_void_p:
        """The state for batches of so many files; each size has its own, as changing the size is slow."""
        if count not in self._states:
            state = ctypes.c_void_p()
            self._nvjpeg.call("nvjpegJpegStateCreate", self._nvjpeg.handle, ctypes.byref(state))
            try:
                self._nvjpeg.call("nvjpegDecodeBatchedInitialize", self._nvjpeg.handle, state, count, 1, _PLANES)
            except BaseException:  # the next batch of that size tries again
                self._nvjpeg.library.nvjpegJpegStateDestroy(state)
                raise
            self._states[count] = state
        return self._states[count]


def open_hardware_lane(cuda: Cuda, nvjpeg: NvJpeg, kernels: KernelLauncher, quick_calls: QuickCalls) -> PictureLane:
    """Open a lane with a hardware decoder of its own, on the thread that will use it."""
    return PictureLane(cuda, NvJpegDecoder(nvjpeg), kernels, quick_calls)


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
