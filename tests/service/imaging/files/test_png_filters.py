from __future__ import annotations

import subprocess
import sys
import zlib
from itertools import product

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from service.core.errors import InvalidImage
from service.core.pictures import Pixels, Size
from service.imaging.files.header import Header, read_header
from service.imaging.files.png import decode_png
from service.imaging.files.png_filters import decode_by_libspng, suits_libspng
from tests.serving import image_files as files


def filtered_rows(pixels: NDArray[np.uint8], filters: list[int]) -> bytes:
    """The scanlines of a picture, each with the filter of that number, computed as the standard says."""
    height, width, channels = pixels.shape
    rows = np.vstack((np.zeros((1, width * channels)), pixels.reshape(height, -1))).astype(int)
    lines = bytearray()
    for row, kind in enumerate(filters, 1):
        own, above = rows[row], rows[row - 1]
        left, corner = (np.concatenate((np.zeros(channels, int), line[:-channels])) for line in (own, above))
        to_left, to_above, to_corner = (abs(left + above - corner - line) for line in (left, above, corner))
        paeth = np.where(
            (to_left <= to_above) & (to_left <= to_corner), left, np.where(to_above <= to_corner, above, corner)
        )
        predicted = (np.zeros_like(own), left, above, (left + above) // 2, paeth)[kind]
        lines += bytes([kind]) + ((own - predicted) % 256).astype(np.uint8).tobytes()
    return bytes(lines)


def png_of(pixels: NDArray[np.uint8], lines: bytes) -> bytes:
    height, width, channels = pixels.shape
    header = files.ihdr(width, height, 8, files.COLOUR_TYPES[channels])
    return files.png_of_chunks(header, files.chunk(b"IDAT", zlib.compress(lines)))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [1, 2, 17, 64])
def test_all_filters_in_any_order_are_undone_exactly(channels: int, width: int) -> None:
    filters = [kind for pair in product(range(5), repeat=2) for kind in pair]
    pixels = np.random.default_rng(width).integers(0, 256, (len(filters), width, channels), np.uint8)
    file = png_of(pixels, filtered_rows(pixels, filters))
    decoded = decode_png(file, read_header(file, max_pixels=10**6))
    assert decoded.dtype == np.uint8
    assert np.array_equal(decoded, pixels)


@pytest.mark.parametrize("height", [63, 1500])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("depth", [np.uint8, np.uint16])
def test_libspng_and_opencv_decode_the_same_pixels(depth: type, channels: int, height: int) -> None:
    steps = np.random.default_rng(1).integers(-9, 10, (height, 700, channels))
    pixels: Pixels = np.cumsum(steps, axis=1).astype(depth)
    file = cv2.imencode(".png", pixels)[1].tobytes()  # OpenCV's pixels are BGR, and its encoder chooses filters
    decoded = decode_png(file, read_header(file, max_pixels=10**7))
    assert decoded.dtype == depth
    in_its_order = decoded[:, :, [2, 1, 0, 3][:channels]] if channels > 1 else decoded
    assert np.array_equal(in_its_order, pixels)


def test_what_libspng_refuses_is_an_error_and_no_picture() -> None:
    pytest.importorskip("pyspng", reason="pyspng has wheels for Linux on x86-64 only")
    file = files.png(np.zeros((9, 9, 3), np.uint8))
    for broken in (file[:20], file[: len(file) // 2], bytes(100)):
        with pytest.raises(InvalidImage, match="corrupt"):
            decode_by_libspng(np.frombuffer(broken, np.uint8), Header("png", Size(9, 9)))


@pytest.mark.parametrize("kind", [5, 255])
def test_an_unknown_filter_is_refused(kind: int) -> None:
    lines = bytearray(4 * 13)
    lines[13] = kind
    file = png_of(np.zeros((4, 4, 3), np.uint8), bytes(lines))
    with pytest.raises(InvalidImage):
        decode_png(file, read_header(file, max_pixels=100))


@pytest.mark.parametrize(
    ("header", "interlaced", "suits"),
    [
        (Header("png", Size(9, 9)), False, True),
        (Header("png", Size(9, 9), colour="grey", alpha=True), False, True),
        (Header("png", Size(4000, 3000), bits=16), False, True),
        (Header("png", Size(9, 9)), True, False),
        (Header("png", Size(9, 9), colour="grey", bits=4), False, False),
        (Header("png", Size(9, 9), colour="palette"), False, False),
    ],
)
def test_libspng_gets_samples_of_whole_bytes_in_order(header: Header, interlaced: bool, suits: bool) -> None:
    if suits:
        pytest.importorskip("pyspng", reason="pyspng has wheels for Linux on x86-64 only")
    assert suits_libspng(header, interlaced=interlaced) is suits


def test_without_libspng_opencv_decodes_them() -> None:
    program = """
import sys
sys.modules["pyspng"] = None
import numpy as np
from service.imaging.files import png, png_filters
from service.imaging.files.header import read_header
pixels = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)
file = png.encode_png(pixels, None)
header = read_header(file, max_pixels=1000)
assert not png_filters.suits_libspng(header, interlaced=False)
assert (png.decode_png(file, header) == pixels).all()
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
