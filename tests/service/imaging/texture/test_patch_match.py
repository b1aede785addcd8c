"""The search and the vote of the texture stage, and their compiled library."""

from __future__ import annotations

import numpy as np
import pytest

from service.imaging.texture import patch_match
from service.imaging.texture.patch_match import CompiledKernel, Part, Step, View, installed_kernel


def test_without_the_extension_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch_match, "_EXTENSION", "service.imaging.texture._not_compiled")
    assert installed_kernel() is None


STEP = Step(1, 0, 0, 0, 0, 48, fresh=False, first=True, backward=False, seed=0)


def view_of(picture: np.ndarray, valid: np.ndarray, targets: np.ndarray) -> View:
    """Return a view of a picture H×W×3 with a uniform coarse layer and equal weights."""
    height, width = valid.shape
    flat = np.concatenate([picture.ravel(), np.zeros(16, np.float32)]).astype(np.float32)
    numbers = np.full(height * width, -1, np.int32)
    numbers[targets] = np.arange(len(targets))
    return View(
        height,
        width,
        now=flat.copy(),
        source=flat,
        trust=np.ones(height * width, np.float32),
        guide=np.zeros(height * width * 16, np.float32),
        valid=valid.astype(np.uint8).ravel(),
        redrawn=(numbers >= 0).astype(np.uint8),
        numbers=numbers,
        targets=targets.astype(np.int32),
        sources=np.flatnonzero(valid).astype(np.int32),
    )


def halves() -> View:
    """Return a view whose right half repeats the known left half; its targets are rows 2 to 22 of the right half."""
    left = np.random.default_rng(3).random((24, 24, 3), np.float32)
    valid, wanted = np.zeros((2, 24, 48), np.bool_)
    valid[2:22, 2:22] = wanted[2:22, 26:46] = True
    return view_of(np.hstack([left, left]), valid, np.flatnonzero(wanted))


def test_sweeps_find_the_patches_that_are_equal(kernel: CompiledKernel) -> None:
    view, count = halves(), 400
    matches, distances = np.full(count, -1, np.int32), np.ones(count, np.float32)
    for number in range(60):
        step = STEP._replace(fresh=number == 0, backward=number % 2 == 1, seed=number)
        kernel.sweep(view, step, Part(0, count), matches.copy(), matches, distances)
    assert (matches == view.targets - 24).all()
    assert (distances == 0).all()


def test_a_part_of_a_sweep_writes_to_its_targets_and_sees_the_others_as_they_were(kernel: CompiledKernel) -> None:
    view, count = halves(), 400
    before = np.where(np.arange(count) < 200, view.targets - 24, -1).astype(np.int32)
    alone, beside = (np.full(count, 7, np.int32) for _ in range(2))
    alone[200:], beside[200:] = -1, -1
    beside[:200] = 5  # targets of another thread, at work on them meanwhile
    for matches in (alone, beside):
        kernel.sweep(view, STEP, Part(200, 400), before, matches, np.ones(count, np.float32))
    assert (alone[200:] == beside[200:]).all()
    assert (alone[200:] == view.targets[200:] - 24).mean() > 0.9  # each continues the match of the target above it
    assert ((alone[:200] == 7) & (beside[:200] == 5)).all()


def test_patches_that_are_matched_often_are_left_for_others_that_fit_as_well(kernel: CompiledKernel) -> None:
    grey = halves()._replace(now=np.full_like(halves().now, 0.5), source=np.full_like(halves().source, 0.5))

    def most_often(**penalties: float) -> int:
        matches = np.full(400, grey.sources[210], np.int32)
        step = STEP._replace(**penalties)
        kernel.sweep(grey, step, Part(0, 400), matches.copy(), matches, np.zeros(400, np.float32))
        return int(np.bincount(matches).max())

    assert most_often() == 400
    assert most_often(crowding_flat=0.001) < 40


def test_the_vote_of_parts_is_that_of_the_whole_to_the_bit(kernel: CompiledKernel) -> None:
    matches = np.random.default_rng(0).choice(halves().sources, 400)
    found = []
    for rows in ([Part(0, 24)], [Part(0, 1), Part(1, 9), Part(9, 12), Part(12, 24)]):
        view = halves()
        weights = np.linspace(0.1, 1, 400, dtype=np.float32)
        for part in rows:
            kernel.vote(view, part, matches, weights, np.linspace(0.5, 1, 25, dtype=np.float32))
        found.append(view.now)
    assert np.array_equal(*found)
    assert not np.array_equal(found[0], halves().now)


def test_arrays_with_gaps_are_refused(kernel: CompiledKernel) -> None:
    view = halves()._replace(trust=np.zeros(50, np.float32)[::2])
    with pytest.raises(ValueError, match="contiguous"):
        kernel.vote(view, Part(0, 1), view.targets, view.trust, view.trust)
