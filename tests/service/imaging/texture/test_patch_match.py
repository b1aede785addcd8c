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
        known=(numbers < 0).astype(np.uint8),
        redrawn=(numbers >= 0).astype(np.uint8),
        across=np.zeros_like(flat),
        down=np.zeros_like(flat),
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
        found.append(np.concatenate([view.now, view.across, view.down]))
    assert np.array_equal(*found)
    assert not np.array_equal(found[0][: len(halves().now)], halves().now)


def test_the_differences_that_are_voted_are_those_of_the_source(kernel: CompiledKernel) -> None:
    view = halves()
    kernel.vote(view, Part(0, 24), view.targets - 24, np.ones(400, np.float32), np.ones(25, np.float32))
    picture = view.source[:-16].reshape(24, 48, 3)
    across, down = (plane[:-16].reshape(24, 48, 3)[2:21, 26:45] for plane in (view.across, view.down))
    assert np.allclose(across, np.diff(picture, axis=1)[2:21, 26:45], atol=1e-5)
    assert np.allclose(down, np.diff(picture, axis=0)[2:21, 26:45], atol=1e-5)


def aims(view: View, outline: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the differences to the next pixel and to the one below that a blend aims at, red, H×W."""
    now, *voted = (plane[:-16].reshape(view.height, view.width, 3) for plane in (view.now, view.across, view.down))
    found = []
    for axis, differences in zip((1, 0), voted, strict=True):
        drawn = np.diff(now, axis=axis, append=0)
        fourth = ((drawn - differences) ** 2).sum(2, keepdims=True) ** 2
        found.append((differences + (drawn - differences) * fourth / (fourth + outline**4))[..., 0])
    return found[0], found[1]


def blended_exactly(view: View, pull: float, outline: float) -> np.ndarray:
    """Return the red channel after a blend, H×W, by solving all equations at once."""
    now = view.now[:-16:3].reshape(view.height, view.width)
    across, down = aims(view, outline)
    redrawn, known = (plane.reshape(view.height, view.width) > 0 for plane in (view.redrawn, view.known))
    number = np.cumsum(redrawn).reshape(redrawn.shape) - 1
    rows, values = [], []
    for differences, y, x in ((across, 0, 1), (down, 1, 0)):
        for place in np.ndindex(view.height - y, view.width - x):
            other = place[0] + y, place[1] + x
            if not (redrawn[place] or redrawn[other]) or not all(redrawn[end] or known[end] for end in (place, other)):
                continue
            row, value = np.zeros(redrawn.sum()), differences[place]
            for end, sign in ((other, 1), (place, -1)):
                if redrawn[end]:
                    row[number[end]] = sign
                else:
                    value = value - sign * now[end]
            rows.append(row)
            values.append(value)
    rows += list(np.sqrt(pull) * np.eye(redrawn.sum()))
    values += list(np.sqrt(pull) * now[redrawn])
    found = now.copy()
    found[redrawn] = np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)[0]
    return found


@pytest.mark.parametrize("outline", [0.5, 100])
@pytest.mark.parametrize("hole", [np.s_[3:9, 4:13], np.s_[0:12, 9:16], np.s_[11:12, 0:16]], ids=str)
def test_the_blend_is_the_best_compromise_of_voted_colours_and_differences(
    kernel: CompiledKernel, hole: tuple[slice, slice], outline: float
) -> None:
    """The last column of the hole is not redrawn, and counts for nothing."""
    random = np.random.default_rng(0)
    masked = np.zeros((12, 16), np.bool_)
    masked[hole] = True
    view = view_of(random.random((12, 16, 3), np.float32), ~masked, np.flatnonzero(masked))
    view.redrawn.reshape(12, 16)[:, hole[1].stop - 1] = 0
    for plane in (view.across, view.down):
        plane[:-16] = random.normal(0, 0.2, plane.size - 16)
    before, wanted = view.now.copy(), blended_exactly(view, 0.1, outline)
    kernel.blend(view, 0.1, outline)
    redrawn = np.append(np.repeat(view.redrawn > 0, 3), np.zeros(16, np.bool_))
    assert np.array_equal(view.now[~redrawn], before[~redrawn])
    left, all_of_it = (np.abs(plane[:-16:3].reshape(12, 16) - wanted).max() for plane in (view.now, before))
    assert left < 0.02 * all_of_it
