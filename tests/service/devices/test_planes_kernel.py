"""Compiled conversion of tiles: the same bytes as with OpenCV and numpy, for values and sizes of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from service.devices.planes import to_planes, to_tile
from service.devices.planes_kernel import PlanesKernel, installed_kernel
from tests.service.extensions import required


@pytest.fixture(scope="module")
def kernel() -> PlanesKernel:
    return required(installed_kernel())


def planes_of_all_kinds() -> Iterator[NDArray[np.float32]]:
    """Yield planes C×H×W of 1 to 4 channels, with values beyond [0, 1], and sizes that keep or release the GIL."""
    random = np.random.default_rng(5)
    for number in range(60):
        size = (2, 200) if number % 20 == 0 else (1, 70)
        height, width = random.integers(*size, 2).tolist()
        values = random.normal(0.5, (0.2, 3.0, 1e9)[number % 3], (number % 4 + 1, height, width))
        yield values.astype(np.float32)
    yield np.ones((3, 160, 160), np.float32)


def test_tiles_are_those_of_opencv_and_numpy(kernel: PlanesKernel) -> None:
    for planes in planes_of_all_kinds():
        np.testing.assert_array_equal(kernel.to_tile(planes, None), to_tile(planes, None))


def test_halves_are_rounded_to_the_even_level_like_those_of_opencv(kernel: PlanesKernel) -> None:
    halves = (np.arange(-2, 258, dtype=np.float32) + np.float32(0.5)) / np.float32(255)
    near = np.concatenate([np.nextafter(halves, np.float32(side)) for side in (-1, 2)])
    planes = np.concatenate([halves, near, [0.0, -0.0, 3e38, -3e38, 1e-45]]).astype(np.float32)[None, None]
    np.testing.assert_array_equal(kernel.to_tile(planes, None), to_tile(planes, None))


def test_pixels_become_the_floats_that_numpy_gives(kernel: PlanesKernel) -> None:
    random = np.random.default_rng(6)
    for channels in (1, 3, 4):
        for height, width in ((1, 1), (16, 16), (33, 47), (160, 161)):
            pixels = random.integers(0, 256, (height, width, channels), np.uint8)
            compiled, expected = np.empty((2, channels, height, width), np.float32)
            kernel.to_planes(pixels, compiled)
            to_planes(pixels, expected)
            np.testing.assert_array_equal(compiled, expected)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 1000, -1])
def test_there_is_no_tile_where_a_value_is_not_finite(kernel: PlanesKernel, bad: float, at: int) -> None:
    planes = np.zeros((3, 40, 40), np.float32)
    planes.flat[at] = bad
    assert kernel.to_tile(planes, None) is None
    assert kernel.to_tile(planes, np.zeros((40, 40, 3), np.uint8)) is None


def test_a_tile_is_written_into_the_array_that_is_given_even_if_its_rows_are_apart(kernel: PlanesKernel) -> None:
    planes = np.random.default_rng(7).random((3, 20, 30), np.float32)
    larger = np.zeros((20, 40, 3), np.uint8)
    for into in (np.zeros((20, 30, 3), np.uint8), larger[:, 5:35]):
        assert kernel.to_tile(planes, into) is into
        np.testing.assert_array_equal(into, to_tile(planes, None))
    assert not larger[:, :5].any()


def test_planes_and_pixels_may_be_views(kernel: PlanesKernel) -> None:
    random = np.random.default_rng(8)
    planes: Any = random.random((20, 30, 3), np.float32).transpose(2, 0, 1)
    np.testing.assert_array_equal(kernel.to_tile(planes, None), to_tile(planes, None))
    pixels, converted = random.integers(0, 256, (20, 40, 3), np.uint8)[:, 3:33], np.empty((2, 3, 20, 30), np.float32)
    kernel.to_planes(pixels, converted[0])
    to_planes(pixels, converted[1])
    np.testing.assert_array_equal(*converted)


def test_several_results_of_a_row_are_converted_together(kernel: PlanesKernel) -> None:
    planes = np.random.default_rng(9).random((4, 3, 8, 9), np.float32)
    np.testing.assert_array_equal(kernel.to_tile(planes, None), to_tile(planes, None))
    planes[3, 2, 7, 8] = np.nan
    assert kernel.to_tile(planes, None) is None


def test_arrays_of_another_shape_are_refused_before_they_are_written_to(kernel: PlanesKernel) -> None:
    with pytest.raises(ValueError, match="does not fit planes"):
        kernel.to_tile(np.zeros((3, 8, 8), np.float32), np.zeros((8, 7, 3), np.uint8))
    with pytest.raises(ValueError, match="do not fit pixels"):
        kernel.to_planes(np.zeros((8, 8, 3), np.uint8), np.zeros((3, 8, 7), np.float32))
