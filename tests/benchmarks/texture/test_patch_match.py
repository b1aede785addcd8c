"""The kernel of the texture stage is compiled once, and computes the same on every instruction set."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.texture.level import Level
from benchmarks.texture.parameters import Parameters
from benchmarks.texture.patch_match import CompiledKernel, Step, View, build
from tests.benchmarks.texture.textured import textured


def test_a_kernel_that_is_there_is_not_compiled_again(libraries: Path) -> None:
    first = build("native", libraries)
    stamp = first.stat().st_mtime_ns
    assert build("native", libraries) == first
    assert first.stat().st_mtime_ns == stamp


def test_an_instruction_set_that_the_compiler_does_not_know_is_refused(libraries: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        build("no-such-processor", libraries)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86's instruction sets")
def test_without_avx_every_distance_has_the_same_bits(libraries: Path, kernel: CompiledKernel) -> None:
    picture = textured(64, 64, (slice(20, 44), slice(20, 44)))
    plain = CompiledKernel(build("x86-64", libraries))
    levels = [Level(picture.fill.astype(np.float32) / 255, picture.hole, Parameters(), 1) for _ in range(2)]
    for level, each in zip(levels, (kernel, plain), strict=True):
        level.search_afresh(each, seed=0)
    assert np.array_equal(levels[0].distances, levels[1].distances)


def test_the_search_finds_the_patch_that_is_equal(kernel: CompiledKernel) -> None:
    """The right half repeats the left one, and one patch of it is wanted."""
    left = np.random.default_rng(3).random((24, 24, 3), np.float32)
    picture = np.concatenate([np.hstack([left, left]).ravel(), np.zeros(16, np.float32)])
    valid = np.zeros((24, 48), np.uint8)
    valid[2:22, 2:22] = 1
    targets = np.array([12 * 48 + 36], np.int32)
    sources = np.flatnonzero(valid).astype(np.int32)
    trust, guide = np.ones(24 * 48, np.float32), np.zeros(24 * 48 * 16, np.float32)
    view = View(24, 48, picture, picture, trust, guide, valid.ravel(), targets, sources)
    matches, distances = np.full(1, -1, np.int32), np.ones(1, np.float32)
    for seed in range(200):
        kernel.search(view, Step(1, 0, 0, 2, 48, fresh=seed == 0, seed=seed), matches, distances)
    assert (matches[0], distances[0]) == (12 * 48 + 12, 0)


def test_arrays_with_gaps_are_refused(kernel: CompiledKernel) -> None:
    gaps = np.zeros(50, np.float32)[::2]
    view = View(5, 5, gaps, gaps, gaps, gaps, np.zeros(25, np.uint8), np.zeros(1, np.int32), np.zeros(1, np.int32))
    with pytest.raises(ValueError, match="contiguous"):
        kernel.vote(view, np.zeros(1, np.int32), np.ones(1, np.float32), np.ones(25, np.float32))
