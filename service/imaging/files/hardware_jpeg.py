"""Finds the JPEGs that a GPU's hardware decodes to the same pixels as the CPU, and whether they are sound.

The hardware reports no damage (docs/adr/0014-jpeg-on-cpu-threads.md), so libjpeg-turbo reads every code of a file
before the hardware may decode it. At an eighth of the size and without colour that takes half as long as decoding.
"""

from __future__ import annotations

import simplejpeg

from service.core.errors import InvalidImage
from service.core.picture_work import JpegPlanes
from service.imaging.files.containers import SOS, jpeg_segments
from service.imaging.files.header import Header

_BASELINE = 0xC0
_FRAME_BYTES = 6 + 3 * 3
"""Payload of a frame header with three components."""
_SUBSAMPLINGS = frozenset({(1, 1), (2, 1), (2, 2)})
_SCAN = b"\xff\xda"


def may_be_for_hardware(header: Header) -> bool:
    """Whether the hardware may decode a file, as far as its header tells; `hardware_planes` reads the whole file."""
    return header.format == "jpeg" and not header.progressive and not header.inks and header.colour == "rgb"


def hardware_planes(data: bytes, header: Header) -> JpegPlanes | None:
    """The planes of a JPEG that the hardware decodes as the CPU does; None for other files.

    These are baseline files of one scan with luma and two planes of chroma, 4:4:4, 4:2:2 or 4:2:0.

    Args:
        data: the file.
        header: the file's header.
    """
    if not may_be_for_hardware(header):
        return None
    try:
        return _planes_of_frame(data)
    except InvalidImage:  # the CPU's decoder says what is wrong
        return None


def is_sound(data: bytes) -> bool:
    """Whether the CPU's strict decoder finds nothing wrong with a JPEG, not even what it would forgive."""
    try:
        simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1, min_factor=8)
    except ValueError:
        return False
    return True


def _planes_of_frame(data: bytes) -> JpegPlanes | None:
    frames, one_scan = [], False
    for segment in jpeg_segments(data):
        if segment.kind[0] == _BASELINE:
            frames.append(data[segment.start : segment.end])
        elif segment.kind[0] == SOS:
            one_scan = data[segment.start : segment.start + 1] == b"\3" and data.find(_SCAN, segment.end) < 0
    if not one_scan or len(frames) != 1 or len(frames[0]) != _FRAME_BYTES or frames[0][0] != 8:
        return None
    frame = frames[0]
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    factors = [(frame[at] >> 4, frame[at] & 15) for at in (7, 10, 13)]
    if factors[0] not in _SUBSAMPLINGS or factors[1:] != [(1, 1), (1, 1)]:
        return None
    try:
        *_, colours, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except (KeyError, ValueError):
        return None
    return JpegPlanes(height, width, *factors[0]) if colours == "YCbCr" else None
