"""Encodes a JPEG in strips that several threads can work on, joined by restart markers.

A restart marker resets the decoder, so strips that are encoded separately decode to the same pixels as a picture that
is encoded in one pass. The number of strips depends on the picture's size only, so the same picture always gives the
same file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from service.imaging.files.containers import EOI, SOS, Chunk, jpeg_segments
from service.imaging.pool.parallel_steps import DeferredStep, StepRunner, results_of

Chroma = Literal["444", "420"]
"""Chroma subsampling: 4:4:4 (colours at the picture's size) or 4:2:0 (at half its height and width)."""
FULL_CHROMA_QUALITY = 90
"""Least quality at which colours are written at the picture's size."""
FULL_CHROMA_QUALITY_IF_HALVED = 96
"""The same for pictures that were 4:2:0 in the upload: writing their colours in full makes the file an eighth larger
for 0.2 dB at qualities up to 95, and takes twice the time."""
MIN_STRIP_PIXELS = 256 * 256
"""Least pixels of a strip, about 0.3 ms of encoding; smaller strips cost more for scheduling than they save."""
MAX_STRIPS = 8
_MAX_INTERVAL = 65_535
"""Largest number of blocks between two restart markers in the format."""
_FRAME = 0xC0
_MARKER_AND_LENGTH = 4
"""Bytes of a segment before its payload."""


def choose_chroma(quality: int, *, halved: bool) -> Chroma:
    """Choose the chroma subsampling for a quality, 1 to 100; `halved`: whether the upload was 4:2:0."""
    return "444" if quality >= (FULL_CHROMA_QUALITY_IF_HALVED if halved else FULL_CHROMA_QUALITY) else "420"


def encode_jpeg(
    pixels: NDArray[np.uint8],
    quality: int,
    chroma: Chroma,
    run_steps: StepRunner,
    ahead: Mapping[range, DeferredStep[bytes]] = MappingProxyType({}),
) -> bytes:
    """Encode H×W×1 or H×W×3 pixels; a grey picture has no `chroma`. `ahead` has some of its strips, by their rows."""
    found = {**jpeg_strips(pixels, quality, chroma), **ahead}
    encoded = results_of(list(found.values()), run_steps)
    if len(encoded) == 1:
        return encoded[0]
    height, width, channels = pixels.shape
    return _join_strips(encoded, height, _interval(width, len(next(iter(found))), _block(channels, chroma)))


def jpeg_strips(pixels: NDArray[np.uint8], quality: int, chroma: Chroma) -> dict[range, DeferredStep[bytes]]:
    """Return the steps that encode the strips, by their rows, from the top down; small pictures are one strip."""
    height, width, channels = pixels.shape
    block = _block(channels, chroma)
    rows = _strip_height(height, width, block)
    colours, sampling = ("RGB", chroma) if channels == 3 else ("GRAY", "Gray")
    if _interval(width, rows, block) > _MAX_INTERVAL:
        rows = height

    def encoded(strip: range) -> bytes:
        return bytes(simplejpeg.encode_jpeg(pixels[strip.start : strip.stop], quality, colours, sampling))

    divided = [range(top, min(top + rows, height)) for top in range(0, height, rows)]
    return {strip: DeferredStep(partial(encoded, strip)) for strip in divided}


def _block(channels: int, chroma: Chroma) -> int:
    """Side of the blocks that a picture is encoded in."""
    return 16 if channels == 3 and chroma == "420" else 8


def _interval(width: int, rows: int, block: int) -> int:
    """Number of blocks in a strip of that many rows."""
    return -(-width // block) * (rows // block)


def _strip_height(height: int, width: int, block: int) -> int:
    """Height of a strip: a multiple of the block size, so that strips are about equal."""
    strips = max(1, min(MAX_STRIPS, height * width // MIN_STRIP_PIXELS))
    return -(-height // strips // block) * block


def _join_strips(encoded: list[bytes], height: int, interval: int) -> bytes:
    """Join strips to one file: the first one's headers with the whole height, then the blocks of all strips.

    The headers of all strips have the same length, because only the height differs.
    """
    first, (frame, scan) = encoded[0], _frame_and_scan_headers(encoded[0])
    head = bytearray(first[: scan.start - _MARKER_AND_LENGTH])
    struct.pack_into(">H", head, frame.start + 1, height)
    restart = struct.pack(">HHH", 0xFFDD, 4, interval)
    pieces: list[bytes | bytearray | memoryview] = [head, restart, first[scan.start - _MARKER_AND_LENGTH : scan.end]]
    for number, strip in enumerate(encoded):
        pieces += (memoryview(strip)[scan.end : -2], bytes((0xFF, 0xD0 + number % 8)))
    pieces[-1] = bytes((0xFF, EOI))
    return b"".join(pieces)


def _frame_and_scan_headers(jpeg: bytes) -> tuple[Chunk, Chunk]:
    """The headers of the frame and of the scan in a file that simplejpeg has written."""
    found = {segment.kind[0]: segment for segment in jpeg_segments(jpeg)}
    return found[_FRAME], found[SOS]
