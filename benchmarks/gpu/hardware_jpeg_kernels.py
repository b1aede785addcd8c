"""The last steps of a JPEG decoder on a GPU, with the same result as libjpeg-turbo's to the bit.

Chroma is enlarged by libjpeg's triangle filter ("fancy upsampling": jdsample.c, h2v1 and h2v2), and converted by its
integers of 16 fractional bits (jdcolor.c). Both are given by the Independent JPEG Group's library, version 6b.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engines.cuda.api import Cuda, Stream
from engines.errors import EngineFailed, EngineUnavailable

if TYPE_CHECKING:
    from benchmarks.gpu.hardware_jpeg_lane import JpegPlanes

_BLOCK = (32, 8)
SOURCE = r"""
typedef unsigned char u8;

__device__ int enlarged(const u8* plane, long pitch, int rows, int columns, int x, int y, int across, int down)
{
    int column = across == 2 ? x >> 1 : x, row = down == 2 ? y >> 1 : y;
    const u8* near_row = plane + row * pitch;
    if (across == 1)
        return near_row[column];
    int beside = min(max(column + ((x & 1) ? 1 : -1), 0), columns - 1);
    if (down == 1)
        return (3 * near_row[column] + near_row[beside] + ((x & 1) ? 2 : 1)) >> 2;
    const u8* far_row = plane + min(max(row + ((y & 1) ? 1 : -1), 0), rows - 1) * pitch;
    int here = 3 * near_row[column] + far_row[column], other = 3 * near_row[beside] + far_row[beside];
    return (3 * here + other + ((x & 1) ? 7 : 8)) >> 4;
}

__device__ u8 byte(int value) { return (u8)min(max(value, 0), 255); }

extern "C" __global__ void ycc_to_rgb(const u8* luma, const u8* blue, const u8* red, u8* pixels, long luma_pitch,
                                      long blue_pitch, long red_pitch, int height, int width, int across, int down)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int columns = (width + across - 1) / across, rows = (height + down - 1) / down;
    int bright = luma[y * luma_pitch + x];
    int cb = enlarged(blue, blue_pitch, rows, columns, x, y, across, down) - 128;
    int cr = enlarged(red, red_pitch, rows, columns, x, y, across, down) - 128;
    u8* pixel = pixels + 3 * ((long)y * width + x);
    pixel[0] = byte(bright + ((91881 * cr + 32768) >> 16));
    pixel[1] = byte(bright + ((-22554 * cb - 46802 * cr + 32768) >> 16));
    pixel[2] = byte(bright + ((116130 * cb + 32768) >> 16));
}
"""


class JpegKernels:
    """The compiled kernels on one GPU; may be used by several threads.

    Args:
        cuda: the GPU, current on this thread.

    Raises:
        EngineUnavailable: NVRTC, the compiler, is missing.
        EngineFailed: the kernels cannot be compiled or loaded.
    """

    def __init__(self, cuda: Cuda) -> None:
        try:
            self._driver: Any = importlib.import_module("cuda.bindings.driver")
            nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
            code = _compile(nvrtc, cuda.device.capability)
        except (ImportError, RuntimeError) as error:
            raise EngineUnavailable(f"NVRTC does not load ({error}); pip install -e '.[gpu]'") from error
        module = self._call("cuModuleLoadData", code)
        self._function = self._call("cuModuleGetFunction", module, b"ycc_to_rgb")

    def to_rgb(
        self, planes: JpegPlanes, channels: Sequence[int], pitches: Sequence[int], pixels: int, stream: Stream
    ) -> None:
        """Start the conversion of three planes to H×W×3 bytes; all are addresses on the GPU."""
        grid = (-(-planes.width // _BLOCK[0]), -(-planes.height // _BLOCK[1]))
        values = (*channels, pixels, *pitches, *planes)
        kinds = (*[ctypes.c_void_p] * 4, *[ctypes.c_long] * 3, *[ctypes.c_int] * 4)
        handle = int(stream.handle)
        self._call("cuLaunchKernel", self._function, *grid, 1, *_BLOCK, 1, 0, handle, (values, kinds), 0)

    def _call(self, function: str, *arguments: Any) -> Any:
        status, *results = getattr(self._driver, function)(*arguments)
        if int(status) != 0:
            raise EngineFailed(f"{function}: {getattr(status, 'name', status)}")
        return results[0] if results else None


def _compile(nvrtc: Any, capability: tuple[int, int]) -> bytes:
    """Compile the kernels for that GPU; returns a cubin."""

    def call(function: str, *arguments: Any) -> Any:
        status, *results = getattr(nvrtc, function)(*arguments)
        if int(status) != 0:
            raise EngineFailed(f"{function}: {getattr(status, 'name', status)}")
        return results[0] if results else None

    program = call("nvrtcCreateProgram", SOURCE.encode(), b"jpeg.cu", 0, [], [])
    call("nvrtcCompileProgram", program, 1, [b"--gpu-architecture=sm_%d%d" % capability])
    code = b" " * call("nvrtcGetCUBINSize", program)
    call("nvrtcGetCUBIN", program, code)
    call("nvrtcDestroyProgram", program)
    return code
