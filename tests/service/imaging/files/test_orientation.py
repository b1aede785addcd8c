"""The orientation of files that state several, or a broken one."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from service.imaging.files.header import read_header
from tests.serving import image_files as files

LIMIT = 50_000_000
RGB = np.zeros((17, 23, 3), np.uint8)
JPEG = files.saved(RGB, "JPEG")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_first_of_two_exif_blocks_counts_as_in_viewers(kind: str) -> None:
    first, second = files.exif(3), files.exif(8)
    data = JPEG
    if kind == "JPEG":
        for block in (second, first):
            data = files.with_jpeg_segment(data, 0xE1, b"Exif\0\0" + block)
    elif kind == "PNG":
        data = files.png(RGB, files.chunk(b"eXIf", first) + files.chunk(b"eXIf", second))
    else:
        data = files.saved(RGB, "WEBP", exif=first) + b"EXIF" + struct.pack("<I", len(second)) + second
        data = data[:4] + struct.pack("<I", len(data) - 8) + data[8:]
    assert read_header(data, max_pixels=LIMIT).orientation == 3


def test_the_first_orientation_that_means_one_counts_and_only_if_its_entry_is_whole() -> None:
    entry = struct.Struct("<HHIHH")
    entries = [entry.pack(0x0112, 3, 1, 9, 0), entry.pack(0x0112, 4, 1, 8, 0), entry.pack(0x0112, 3, 1, 3, 0)]
    block = b"II*\0" + struct.pack("<IH", 8, 3) + b"".join(entries)
    for cut, orientation in ((len(block), 3), (len(block) - 2, 1)):
        data = files.with_jpeg_segment(JPEG, 0xE1, b"Exif\0\0" + block[:cut])
        assert read_header(data, max_pixels=LIMIT).orientation == orientation
