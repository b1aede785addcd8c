"""PNG rows packed in C++: every decoder reads the encoded pixels, whatever they are."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from service.imaging.files import png
from service.imaging.files.header import read_header
from service.imaging.files.png import decode_png, encode_png
from service.imaging.files.scanlines import ScanlinesKernel, installed_kernel, join_adlers
from tests.service.extensions import required

DATA = Path(__file__).resolve().parents[3] / "data"
T = TypeVar("T")
Bytes = NDArray[np.uint8]


@pytest.fixture(scope="module")
def kernel() -> ScanlinesKernel:
    return required(installed_kernel())


def photograph(height: int, width: int, channels: int) -> Bytes:
    """Return noise over a gradient and an edge, blurred as by a lens, in which deflate finds no repetitions."""
    random = np.random.default_rng(height * width)
    slope = np.add.outer(np.arange(height), np.arange(width))[:, :, None] / 7 % 120
    edge = np.where(np.arange(width) > width // 2, 60, 0)[None, :, None]
    noise = cv2.GaussianBlur(random.normal(0, 20, (height, width, channels)), (3, 3), 0.8).reshape(height, width, -1)
    return (slope + edge + noise + 60).clip(0, 255).astype(np.uint8)


def unpack(kernel: ScanlinesKernel, rows: Bytes, pixel_bytes: int, first: int, last: int) -> Bytes:
    """Unpack a strip, check its checksum and its size, and return its filtered rows."""
    strip = kernel.pack(rows, pixel_bytes, first, last)
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    lines = inflater.decompress(strip.packed)
    assert len(lines) == strip.size
    assert inflater.eof == (last == len(rows))
    assert zlib.adler32(lines) == strip.adler
    return np.frombuffer(lines, np.uint8).reshape(last - first, -1)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [(256, 515), (331, 400), (9, 19_000), (19_000, 9)])
def test_all_decoders_read_the_pixels_that_were_encoded(
    kernel: ScanlinesKernel, size: tuple[int, int], channels: int
) -> None:
    del kernel  # requested only to skip where it is missing
    pixels = photograph(*size, channels)
    file = encode_png(pixels, None)
    assert b"IDAT\x78\x01\xec" in file  # a block with a code for every symbol, which is not the last block
    opened = Image.open(BytesIO(file))
    assert opened.info == {}
    assert np.array_equal(np.asarray(opened).reshape(pixels.shape), pixels)
    assert np.array_equal(decode_png(file, read_header(file, max_pixels=1 << 20)), pixels)
    by_opencv = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_UNCHANGED)
    assert by_opencv is not None
    if channels in (1, 3):
        assert np.array_equal(by_opencv.reshape(pixels.shape)[:, :, ::-1], pixels)


def test_rows_are_filtered_by_paeth_as_the_specification_defines_it(kernel: ScanlinesKernel) -> None:
    rows = np.random.default_rng(1).integers(0, 256, (9, 12 * 3), np.uint8)
    for first, last in ((0, 9), (4, 6)):
        lines = unpack(kernel, rows, 3, first, last)
        assert set(lines[:, 0]) == {4}
        for row in range(first, last):
            above = rows[row - 1].astype(int) if row else np.zeros(36, int)
            for at, value in enumerate(rows[row].astype(int)):
                left = int(rows[row, at - 3]) if at >= 3 else 0
                corner = int(above[at - 3]) if at >= 3 else 0
                near = left + above[at] - corner
                predicted = min((left, above[at], corner), key=lambda one, near=near: abs(near - one))
                assert lines[row - first, at + 1] == (value - predicted) % 256


def row_with_differences(differences: Bytes) -> Bytes:
    """Return a row of one channel whose Paeth differences are these bytes."""
    return np.cumsum(differences, dtype=np.uint8)[None]


@pytest.mark.parametrize("after", [0, 1, 7, 30])
def test_runs_of_zeros_of_every_length_are_packed(kernel: ScanlinesKernel, after: int) -> None:
    pieces = [np.r_[np.zeros(length, np.uint8), np.full(1 + length % 9, 7, np.uint8)] for length in range(1, 800)]
    differences = np.concatenate([*pieces, np.zeros(after, np.uint8)])
    row = row_with_differences(differences)
    assert np.array_equal(unpack(kernel, row, 1, 0, 1)[0, 1:], differences)
    assert len(kernel.pack(row, 1, 0, 1).packed) < len(differences) / 20


def test_codes_that_would_be_too_long_are_shortened(kernel: ScanlinesKernel) -> None:
    """Counts that are Fibonacci numbers give the longest Huffman codes: about a bit for each symbol."""
    counts = [1, 1]
    while len(counts) < 27:
        counts.append(counts[-1] + counts[-2])
    differences = np.repeat(np.arange(1, 28, dtype=np.uint8), counts)
    np.random.default_rng(2).shuffle(differences)
    assert np.array_equal(unpack(kernel, row_with_differences(differences), 1, 0, 1)[0, 1:], differences)


@pytest.mark.parametrize("width", [1, 2, 7, 8, 9, 131_070, 131_072])
def test_rows_of_any_length_and_of_one_value_are_packed(kernel: ScanlinesKernel, width: int) -> None:
    for value in (0, 4, 255):
        rows = np.full((3, width), value, np.uint8)
        assert not unpack(kernel, rows, 1, 0, 3)[1:, 1:].any()


def test_the_file_does_not_depend_on_the_order_in_which_strips_are_packed(kernel: ScanlinesKernel) -> None:
    del kernel  # requested only to skip where it is missing
    pixels, counted = photograph(700, 700, 3), []

    def backwards(pieces: Sequence[Callable[[], T]]) -> list[T]:
        counted.append(len(pieces))
        return [piece() for piece in pieces[::-1]][::-1]

    assert encode_png(pixels, None, run_steps=backwards) == encode_png(pixels, None)
    assert counted == [7]


def test_photographs_are_as_small_as_with_a_search_for_repetitions(
    kernel: ScanlinesKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    del kernel  # requested only to skip where it is missing
    larger = []
    for name in ("dress.jpg", "crocs.jpg", "skirt.jpg"):
        pixels = np.asarray(Image.open(DATA / name).convert("RGB"))
        packed = encode_png(pixels, None)
        with monkeypatch.context() as patch:
            patch.setattr(png, "installed_kernel", lambda: None)
            searched = encode_png(pixels, None)
        larger.append(len(packed) / len(searched))
    assert max(larger) < 1.06
    assert sum(larger) / len(larger) < 1.02


def drawing() -> Bytes:
    """Return a repeated tile of noise, which compresses like a pattern or a text."""
    tile = np.random.default_rng(3).integers(0, 2, (16, 16, 1), np.uint8) * 255
    return np.tile(tile, (24, 24, 3))


@pytest.mark.parametrize("pixels", [drawing(), np.full((400, 400, 3), 90, np.uint8)], ids=["pattern", "one colour"])
def test_pictures_with_repetitions_are_searched_for_them(
    kernel: ScanlinesKernel, monkeypatch: pytest.MonkeyPatch, pixels: Bytes
) -> None:
    del kernel  # requested only to skip where it is missing
    file = encode_png(pixels, None)
    monkeypatch.setattr(png, "installed_kernel", lambda: None)
    assert file == encode_png(pixels, None)


@pytest.mark.skipif(sys.platform != "linux", reason="limits its memory as Linux does")
def test_a_lack_of_memory_raises_memory_error(kernel: ScanlinesKernel) -> None:
    """An uncaught C++ exception would end the process."""
    del kernel  # requested only to skip where it is missing
    program = """
import resource
import numpy as np
from service.imaging.files.scanlines import installed_kernel
kernel, rows = installed_kernel(), np.zeros((1, 200_000_000), np.uint8)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 100_000_000, -1))
try:
    kernel.estimate(rows, 1, [0], 1)
except MemoryError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "no memory to pack rows of 1 × 200000000 bytes\n"


def test_checksums_of_two_pieces_are_joined() -> None:
    data = np.random.default_rng(4).integers(0, 256, 300_000, np.uint8).tobytes()
    for size in (0, 1, 65_521, 299_999):
        first, second = data[: len(data) - size], data[len(data) - size :]
        assert join_adlers(zlib.adler32(first), zlib.adler32(second), size) == zlib.adler32(data)
