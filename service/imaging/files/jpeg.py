"""Encodes a JPEG in strips that several threads can work on, joined by restart markers.

A restart marker resets the decoder, so strips that are encoded separately decode to the same pixels as a picture that
is encoded in one pass. The number of strips depends on the picture's size only, so the same picture always gives the
same file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Literal

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from service.imaging.files.containers import EOI, SOS, Chunk, jpeg_segments
from service.imaging.pool.parallel_steps import StepRunner

Chroma = Literal["444", "420"]
"""Colours at the picture's size, or at half its height and width."""
FULL_CHROMA_QUALITY = 90
"""Quality from which on colours are written at the picture's size."""
FULL_CHROMA_QUALITY_IF_HALVED = 96
"""The same for pictures whose colours had half the size in the upload, too: writing them in full makes the file an
eighth larger for 0.2 dB at qualities up to 95, and takes twice the time."""
PIXELS_OF_A_STRIP = 256 * 256
"""Least pixels of a strip, about 0.3 ms of encoding; smaller strips cost more for scheduling than they save."""
MOST_STRIPS = 8
_LONGEST_INTERVAL = 65_535
"""Largest number of blocks between two restart markers in the format."""
_FRAME = 0xC0
_MARKER_AND_LENGTH = 4
"""Bytes of a segment before its payload."""


def choose_chroma(quality: int, *, halved: bool) -> Chroma:
    """Choose the size of the colours for a quality; `halved`: they had half the size in the upload."""
    return "444" if quality >= (FULL_CHROMA_QUALITY_IF_HALVED if halved else FULL_CHROMA_QUALITY) else "420"


def encode_jpeg(pixels: NDArray[np.uint8], quality: int, chroma: Chroma, side_by_side: StepRunner) -> bytes:
    """Encode H×W×1 or H×W×3 pixels; a grey picture has no `chroma`."""
    height, width, channels = pixels.shape
    block = 16 if channels == 3 and chroma == "420" else 8
    rows = _strip_height(height, width, block)
    interval = -(-width // block) * (rows // block)
    colours, sampling = ("RGB", chroma) if channels == 3 else ("GRAY", "Gray")

    def encoded(strip: NDArray[np.uint8]) -> bytes:
        return bytes(simplejpeg.encode_jpeg(strip, quality, colours, sampling))

    if rows >= height or interval > _LONGEST_INTERVAL:
        return encoded(pixels)
    pieces: list[Callable[[], bytes]] = [
        lambda top=top: encoded(pixels[top : top + rows])  # type: ignore[misc]
        for top in range(0, height, rows)
    ]
    return _join_strips(side_by_side(pieces), height, interval)


def _strip_height(height: int, width: int, block: int) -> int:
    """Height of a strip: a multiple of the block size, so that strips are about equal."""
    strips = max(1, min(MOST_STRIPS, height * width // PIXELS_OF_A_STRIP))
    return -(-height // strips // block) * block


def _join_strips(strips: list[bytes], height: int, interval: int) -> bytes:
    """Join strips to one file: the first one's headers with the whole height, then the blocks of all strips.

    The headers of all strips have the same length, because only the height differs.
    """
    first, (frame, scan) = strips[0], _frame_and_scan_headers(strips[0])
    head = bytearray(first[: scan.start - _MARKER_AND_LENGTH])
    struct.pack_into(">H", head, frame.start + 1, height)
    restart = struct.pack(">HHH", 0xFFDD, 4, interval)
    pieces: list[bytes | bytearray | memoryview] = [head, restart, first[scan.start - _MARKER_AND_LENGTH : scan.end]]
    for number, strip in enumerate(strips):
        pieces += (memoryview(strip)[scan.end : -2], bytes((0xFF, 0xD0 + number % 8)))
    pieces[-1] = bytes((0xFF, EOI))
    return b"".join(pieces)


def _frame_and_scan_headers(jpeg: bytes) -> tuple[Chunk, Chunk]:
    """The headers of the frame and of the scan in a file that simplejpeg has written."""
    found = {segment.kind[0]: segment for segment in jpeg_segments(jpeg)}
    return found[_FRAME], found[SOS]
