"""The search and the vote of the texture stage, and the library that they are in."""

from __future__ import annotations

import numpy as np
import pytest

from service.imaging.texture import patch_match
from service.imaging.texture.patch_match import CompiledKernel, Step, View, installed_kernel


def test_without_the_extension_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch_match, "_EXTENSION", "service.imaging.texture._not_compiled")
    assert installed_kernel() is None


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
