"""A GPU's hardware decoder for JPEGs, played by libjpeg-turbo: planes before chroma is enlarged."""

from __future__ import annotations

import ctypes
import io
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engines.cuda.api import Stream
from engines.errors import EngineFailed
from service.core.picture_work import JpegPlanes
from service.devices.pictures.lane import EncodedJpeg
from service.devices.pictures.steps import Plane
from tests.fakes.cuda import FakeRuntime


def planes_of(data: bytes, planes: JpegPlanes) -> list[NDArray[np.uint8]]:
    """Luma and two planes of chroma of a file that is 4:4:4, 4:2:2 or 4:2:0.

    At half the size libjpeg decodes subsampled chroma as it is stored, because it need not be enlarged then.
    """
    luma, blue, red = _drafted(data, 1)
    if (planes.across, planes.down) == (2, 2):
        _, blue, red = _drafted(data, 2)
    if (planes.across, planes.down) == (2, 1):
        blue, red = _stored_chroma(data)
    assert blue.shape == planes.chroma
    return [luma, blue, red]


def _drafted(data: bytes, divisor: int) -> list[NDArray[np.uint8]]:
    with Image.open(io.BytesIO(data)) as image:
        image.draft("YCbCr", (max(1, image.width // divisor), max(1, image.height // divisor)))
        pixels: Any = np.asarray(image)
    return [np.ascontiguousarray(pixels[:, :, number]) for number in range(3)]


def _stored_chroma(data: bytes) -> list[NDArray[np.uint8]]:
    """Chroma of a file that is 4:2:2, which stores Y, Y, Cb, Cr for 16 x 8 pixels.

    Read as a file of four planes of half the width its first two are wrong, because they were one when it was written.
    """
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    height, width = data[frame + 5 : frame + 7], int.from_bytes(data[frame + 7 : frame + 9], "big")
    luma, blue, red = (data[frame + at + 2] for at in (10, 13, 16))  # their tables
    planes = bytes(value for plane in enumerate((luma, luma, blue, red)) for value in (plane[0], 0x11, plane[1]))
    four = b"\xff\xc0\0\x14\x08" + height + (-(-width // 2)).to_bytes(2, "big") + b"\4" + planes
    codes = (data[scan + 6], data[scan + 6], data[scan + 8], data[scan + 10])
    order = b"\xff\xda\0\x0e\4" + bytes(value for plane in enumerate(codes) for value in plane) + b"\0\x3f\0"
    file = data[:frame] + four + data[frame + 19 : scan] + order + data[scan + 14 :]
    with Image.open(io.BytesIO(file)) as image:
        pixels: Any = 255 - np.asarray(image)  # four planes are ink to Pillow
    return [np.ascontiguousarray(pixels[:, :, number]) for number in (2, 3)]


class FakePlanesDecoder:
    """A decoder on a runtime's streams; it can fail, refuse files, and wait.

    Args:
        runtime: whose streams and memory are used.
    """

    offset = 0
    """Added to the luma of every pixel."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self._runtime = runtime
        self.batches: list[int] = []
        self.fail: list[Exception] = []
        """Errors of the next calls."""
        self.refused: set[bytes] = set()
        """Files with which every call fails."""
        self.gate = threading.Event()
        """A call waits until it is set."""
        self.gate.set()
        self.waiting = threading.Event()
        """Set when a call has begun."""
        self.closed = False

    def hold(self) -> None:
        """Make the next call wait: `waiting` is set when it has begun, and `gate` lets it go on."""
        self.waiting.clear()
        self.gate.clear()

    def start(self, files: Sequence[EncodedJpeg], stream: Stream) -> None:
        self.batches.append(len(files))
        self.waiting.set()
        assert self.gate.wait(10)
        if self.fail:
            raise self.fail.pop(0)
        encoded = [ctypes.string_at(file.address, file.nbytes) for file in files]
        if self.refused.intersection(encoded):
            raise EngineFailed("nvjpegDecodeBatched: status 3")
        for file, data in zip(files, encoded, strict=True):
            luma, *chroma = planes_of(data, file.planes)
            luma = np.clip(luma.astype(np.int16) + self.offset, 0, 255).astype(np.uint8)
            for channel, plane in zip(file.channels, (luma, *chroma), strict=True):
                self._runtime.enqueue(int(stream.handle), partial(_write_plane, channel, plane))

    def close(self) -> None:
        self.closed = True


def _write_plane(channel: Plane, plane: NDArray[np.uint8]) -> None:
    for number, row in enumerate(plane):
        ctypes.memmove(channel.address + number * channel.pitch, row.ctypes.data, row.nbytes)
