"""PNG filters undone in C++, or by OpenCV where the C++ was not compiled."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import product

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from service.core.errors import InvalidImage
from service.core.pictures import Pixels, Size
from service.imaging.files import png
from service.imaging.files.header import Header, read_header
from service.imaging.files.png import decode_png
from service.imaging.files.png_filters import FiltersKernel, installed_kernel
from tests.service.extensions import required
from tests.serving import image_files as files


@pytest.fixture(scope="module")
def kernel() -> FiltersKernel:
    return required(installed_kernel())


@pytest.fixture(params=["compiled", "by OpenCV"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Use the compiled kernel, then OpenCV; the former is skipped where it was not compiled."""
    if request.param == "compiled":
        required(installed_kernel())
    else:
        monkeypatch.setattr(png, "installed_filters", lambda: None)
    return request.param


def filtered_rows(pixels: NDArray[np.uint8], filters: list[int]) -> bytes:
    """Return the scanlines of a picture, each filtered by the given type, as the PNG specification defines it."""
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


def decoded(file: bytes) -> Pixels:
    return decode_png(file, read_header(file, max_pixels=10**7))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 17, 64])
def test_all_filters_in_any_order_are_undone_exactly(channels: int, width: int) -> None:
    filters = [kind for pair in product(range(5), repeat=2) for kind in pair]
    pixels = np.random.default_rng(width).integers(0, 256, (len(filters), width, channels), np.uint8)
    found = decoded(png_of(pixels, filtered_rows(pixels, filters)))
    assert found.dtype == np.uint8
    assert np.array_equal(found, pixels)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_filters_are_undone_as_the_specification_says_whatever_the_numbers(
    kernel: FiltersKernel, channels: int, bits: int
) -> None:
    """Some pictures have only three values, so that Paeth's distances are often equal."""
    random = np.random.default_rng(channels)
    header = Header("png", Size(1, 1), bits=bits, colour="grey" if channels < 3 else "rgb", alpha=channels % 2 == 0)
    for number in range(100):
        height, width = (int(side) for side in random.integers(1, 23, 2))
        values = random.choice(random.integers(0, 256, (3, 200)[number % 2]), (height, width, channels * bits // 8))
        filters = [4] * height if number % 3 else list(random.integers(0, 5, height))
        lines = np.frombuffer(filtered_rows(values.astype(np.uint8), filters), np.uint8)
        pixels = kernel.restore(lines, header._replace(stored=Size(height, width)))
        wanted = values.astype(np.uint8) if bits == 8 else values.astype(np.uint8).view(">u2")
        assert pixels.dtype == (np.uint8 if bits == 8 else np.uint16)
        assert np.array_equal(pixels, wanted)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("height", [63, 1500])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("depth", [np.uint8, np.uint16])
def test_pngs_written_by_opencv_are_decoded_exactly(depth: type, channels: int, height: int) -> None:
    steps = np.random.default_rng(1).integers(-9, 10, (height, 700, channels))
    pixels: Pixels = np.cumsum(steps, axis=1).astype(depth)
    found = decoded(cv2.imencode(".png", pixels)[1].tobytes())  # its pixels are BGR, and it chooses filters
    assert found.dtype == depth
    in_its_order = found[:, :, [2, 1, 0, 3][:channels]] if channels > 1 else found
    assert np.array_equal(in_its_order, pixels)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", [5, 255])
@pytest.mark.parametrize("row", [0, 1, 6, 7])
def test_an_unknown_filter_is_refused(row: int, kind: int, bits: int) -> None:
    lines = bytearray((4, *bytes(4 * 3 * bits // 8)) * 8)
    lines[row * len(lines) // 8] = kind
    file = files.png_of_chunks(files.ihdr(4, 8, bits, 2), files.chunk(b"IDAT", zlib.compress(lines)))
    with pytest.raises(InvalidImage):
        decoded(file)


def test_scanlines_of_the_wrong_size_are_refused(kernel: FiltersKernel) -> None:
    with pytest.raises(ValueError, match="do not match"):
        kernel.restore(np.zeros(9 * 28 - 1, np.uint8), Header("png", Size(9, 9)))


def test_interlaced_pictures_are_decoded_by_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(png, "installed_filters", lambda: pytest.fail("rows of several passes"))
    pixels = np.random.default_rng(1).integers(0, 256, (9, 11, 3), np.uint8)
    assert np.array_equal(decoded(files.interlaced_png(pixels)), pixels)
