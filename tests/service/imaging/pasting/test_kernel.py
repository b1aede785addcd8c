"""Compiled pasting: the same bytes as with OpenCV and numpy, for masks and pictures of every kind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from service.imaging.pasting.blending import paste
from service.imaging.pasting.kernel import PastingKernel
from service.imaging.pasting.seam import Seam, find_seam

Mask = NDArray[np.bool_]


def speckles(random: np.random.Generator, size: tuple[int, int]) -> Mask:
    found: Mask = random.random(size) < random.choice([0.02, 0.5, 0.9, 0.999])
    return found


def blobs(random: np.random.Generator, size: tuple[int, int]) -> Mask:
    noise: Any = cv2.GaussianBlur(random.random(size).astype(np.float32), (0, 0), 4)
    return np.asarray(noise > np.median(noise))


def all_but_a_spot(random: np.random.Generator, size: tuple[int, int]) -> Mask:
    mask = np.ones(size, np.bool_)
    top, left = random.integers(0, size)
    mask[top : top + random.integers(0, 9), left : left + random.integers(0, 9)] = False
    return mask


def masks(count: int) -> Iterator[Mask]:
    """Yield masks of all kinds, with sides from 1 pixel on; every fifth is rotated: its rows are not contiguous."""
    random = np.random.default_rng(5)
    for number in range(count):
        height, width = random.integers(1, 200, 2).tolist()
        mask = (speckles, blobs, all_but_a_spot)[number % 3](random, (height, width))
        yield np.rot90(mask) if number % 5 == 0 else mask


def test_the_seam_is_opencvs_to_the_last_bit(kernel: PastingKernel) -> None:
    random = np.random.default_rng(6)
    for mask in masks(300):
        width = int(random.integers(1, 17))
        for compiled, expected in zip(kernel.find_seam(mask, width), find_seam(mask, width), strict=True):
            assert compiled.dtype == expected.dtype
            assert np.array_equal(compiled, expected)


@pytest.mark.parametrize("depth", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_pasted_picture_is_numpys_to_the_last_bit(kernel: PastingKernel, depth: Any, channels: int) -> None:
    random = np.random.default_rng(7)
    for mask in masks(60):
        height, width = mask.shape
        whole = random.integers(0, np.iinfo(depth).max + 1, (height + 3, width + 5, channels), depth)
        fill = random.integers(0, np.iinfo(depth).max + 1, (height, width, channels), depth)
        hole = mask & (random.random(mask.shape) < 0.8)  # other mask pixels belong to another crop
        seam, other = find_seam(mask, 4), whole.copy()
        kernel.paste(whole[2:-1, 1:-4], fill, hole, seam)
        paste(other[2:-1, 1:-4], fill, hole, seam)
        assert np.array_equal(whole, other)


def test_a_picture_whose_rows_have_gaps_is_refused_as_it_could_not_be_written_to(kernel: PastingKernel) -> None:
    hole, none = np.ones((4, 4), np.bool_), np.empty(0, np.int32)
    nothing = Seam(none, none, np.empty(0, np.float32))
    with pytest.raises(ValueError, match="without gaps"):
        kernel.paste(np.zeros((4, 8, 3), np.uint8)[:, ::2], np.zeros((4, 4, 3), np.uint8), hole, nothing)


def test_a_picture_that_cannot_be_written_to_is_refused(kernel: PastingKernel) -> None:
    picture, mask = np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4), np.bool_)
    mask[1:] = True
    picture.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        kernel.paste(picture, np.ones((4, 4, 3), np.uint8), mask, find_seam(mask, 2))
    assert not picture.any()


NO_MEMORY = """
import resource
from pathlib import Path
import numpy as np
from service.imaging.pasting.kernel import installed_kernel

kernel, mask = installed_kernel(), np.zeros((16_000, 16_000), np.bool_)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 500 * 2**20,) * 2)
try:
    kernel.find_seam(mask, 4)
except MemoryError as error:
    print(error)
"""


def test_a_lack_of_memory_fails_the_picture_and_not_the_process(kernel: PastingKernel) -> None:
    ended = subprocess.run([sys.executable, "-c", NO_MEMORY], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "no memory for the seam of a mask of 16000 × 16000 pixels\n")
