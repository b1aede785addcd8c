"""The windows of the texture stage cover every hole once and bound its cost."""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
import pytest

from service.core.pictures import Bool2D, Picture
from service.imaging.texture.patch_match import CompiledKernel, StoppableKernel
from service.imaging.texture.windows import MARGIN, MAX_WINDOW_PIXELS, MAX_WORK, Window, copy_texture, plan_texture
from tests.service.imaging.texture.textured import textured


def copied(picture: Picture, hole: Bool2D, kernel: CompiledKernel) -> bool:
    return copy_texture(picture, plan_texture(hole), kernel)


def box(height: int, width: int, *index: slice) -> Bool2D:
    hole = np.zeros((height, width), np.bool_)
    hole[index] = True
    return hole


def line(height: int, width: int, thickness: int) -> Bool2D:
    canvas = np.zeros((height, width), np.uint8)
    cv2.line(canvas, (20, 20), (width - 20, height - 20), 1, thickness)
    return canvas > 0


def speckles(height: int, width: int) -> Bool2D:
    hole = np.zeros((height, width), np.bool_)
    for shift in range(6):
        hole[20 + shift :: 60, 20::60] = True
    return hole


MASKS = {
    "one pixel": box(64, 64, slice(9, 10), slice(9, 10)),
    "a box": box(512, 512, slice(100, 200), slice(100, 200)),
    "two boxes far apart": box(900, 900, slice(10, 60), slice(10, 60))
    | box(900, 900, slice(800, 880), slice(800, 880)),
    "a wire across a large picture": line(2000, 3000, 12),
    "most of a large picture": box(2000, 3000, slice(300, 1700), slice(300, 2700)),
    "speckles everywhere": speckles(2000, 3000),
    "noise": np.random.default_rng(0).random((1500, 1500)) < 0.5,
    "everything": np.ones((40, 40), np.bool_),
    "nothing": np.zeros((40, 40), np.bool_),
}


@pytest.mark.parametrize("hole", MASKS.values(), ids=MASKS)
def test_every_masked_pixel_is_in_the_core_of_one_window(hole: Bool2D) -> None:
    covered = np.zeros(hole.shape, np.uint8)
    for window in plan_texture(hole).windows:
        core = window.core
        covered[core.top : core.bottom, core.left : core.right] += 1
        assert core.joined(window.seen) == window.seen
    assert (covered[hole] == 1).all()


@pytest.mark.parametrize("hole", MASKS.values(), ids=MASKS)
def test_windows_are_bounded_whatever_the_mask(hole: Bool2D) -> None:
    windows = plan_texture(hole).windows
    seen = [window.seen.area * window.scale**2 for window in windows]
    cores = [(hole[core.top : core.bottom, core.left : core.right], scale) for core, _, scale in windows]
    filled = sum(np.count_nonzero(part) * scale**2 for part, scale in cores)
    assert max(seen, default=0) <= 1.001 * MAX_WINDOW_PIXELS
    assert filled + sum(seen) / 8 <= 1.2 * MAX_WORK


def test_a_small_hole_in_a_large_picture_is_seen_at_full_size_with_its_surroundings() -> None:
    (window,) = plan_texture(MASKS["a box"]).windows
    assert window == Window(window.core, window.core, 1)
    assert tuple(window.seen) == (100 - MARGIN, 100 - MARGIN, 200 + MARGIN, 200 + MARGIN)


def test_a_wire_across_a_large_picture_keeps_its_resolution() -> None:
    windows = plan_texture(MASKS["a wire across a large picture"]).windows
    assert len(windows) > 1
    assert {window.scale for window in windows} == {1}


def test_a_thick_hole_is_one_window_at_a_smaller_size() -> None:
    (window,) = plan_texture(MASKS["most of a large picture"]).windows
    assert window.scale < 0.6


SHAPES = [(64, 64), (1, 1), (1, 90), (90, 1), (3, 64), (64, 3), (5, 5), (130, 33)]


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_picture_fails_and_known_pixels_alpha_and_profile_stay(
    kernel: CompiledKernel, shape: tuple[int, int], channels: int, bits: int
) -> None:
    random = np.random.default_rng(1)
    pixels = random.integers(0, 2**bits, (*shape, channels)).astype(np.uint8 if bits == 8 else np.uint16)
    for hole in (random.random(shape) < 0.2, np.ones(shape, np.bool_), np.zeros(shape, np.bool_)):
        alpha = random.integers(0, 256, shape).astype(np.uint8)
        picture = Picture(pixels.copy(), alpha.copy(), b"profile")
        copied(picture, hole, kernel)
        assert np.array_equal(picture.pixels[~hole], pixels[~hole])
        assert np.array_equal(picture.alpha, alpha)


def test_grey_pictures_and_those_of_16_bits_get_texture(kernel: CompiledKernel) -> None:
    filled = textured(64, 64, (slice(20, 44), slice(20, 44)))
    for pixels in (filled.fill[..., :1].copy(), filled.fill.astype(np.uint16) * 257):
        before = pixels.copy()
        copied(Picture(pixels), filled.hole, kernel)
        steps = [np.abs(np.diff(one[20:44, 20:44, 0].astype(float), axis=1)).mean() for one in (before, pixels)]
        assert steps[1] > 3 * steps[0]


def test_texture_added_at_a_smaller_size_keeps_the_details_of_the_fill(
    kernel: CompiledKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = textured(128, 128, (slice(20, 108), slice(20, 108)))
    monkeypatch.setattr("service.imaging.texture.windows.MAX_WORK", 2000)
    hole = filled.hole
    assert plan_texture(hole).windows[0].scale < 0.6
    checks = (np.indices(hole.shape).sum(0) % 2 * 20).astype(np.uint8)  # a pattern that vanishes at half the size
    pixels = np.where(hole[..., None], filled.fill + checks[..., None], filled.truth)
    copied(Picture(pixels), hole, kernel)
    across = np.abs(np.diff(pixels[30:98, 30:98, 0].astype(float), axis=1)).mean()
    assert across > 15


def test_the_same_picture_gives_the_same_bytes(kernel: CompiledKernel) -> None:
    filled = textured(96, 96, (slice(20, 44), slice(20, 44)))
    twice = [filled.fill.copy() for _ in range(2)]
    for pixels in twice:
        copied(Picture(pixels), filled.hole, kernel)
    assert np.array_equal(*twice)


def test_it_returns_whether_anything_could_be_copied(kernel: CompiledKernel) -> None:
    some = textured(64, 64, (slice(20, 44), slice(20, 44)))
    everything = textured(64, 64, (slice(None), slice(None)))
    assert copied(Picture(some.fill.copy()), some.hole, kernel)
    assert not copied(Picture(everything.fill.copy()), everything.hole, kernel)
    assert not copied(Picture(everything.fill.copy()), np.zeros((64, 64), np.bool_), kernel)


class Stopped(Exception):
    pass


class Noted(NamedTuple):
    """A kernel that notes the names of its calls."""

    kernel: CompiledKernel
    calls: list[str]

    def sweep(self, *args: Any) -> None:
        self.calls.append("sweep")
        self.kernel.sweep(*args)

    def vote(self, *args: Any) -> None:
        self.calls.append("vote")
        self.kernel.vote(*args)

    def blend(self, *args: Any) -> None:
        self.calls.append("blend")
        self.kernel.blend(*args)


def test_it_can_be_stopped_before_each_part_of_a_sweep_and_before_each_vote_and_blend(kernel: CompiledKernel) -> None:
    filled = textured(900, 900, (slice(10, 60), slice(10, 60)), (slice(800, 880), slice(800, 880)))
    plan, every = plan_texture(filled.hole), Noted(kernel, [])
    copy_texture(Picture(filled.fill.copy()), plan, every)
    assert every.calls.count("sweep") >= 10 * len(plan.windows) == 20  # four at half the size, six at full size
    for name in ("sweep", "vote", "blend"):
        for number in (every.calls.index(name), len(every.calls) - 1 - every.calls[::-1].index(name)):
            noted = Noted(kernel, [])

            def stop(noted: Noted = noted, number: int = number) -> None:
                if len(noted.calls) == number:
                    raise Stopped

            with pytest.raises(Stopped):
                copy_texture(Picture(filled.fill.copy()), plan, StoppableKernel(noted, stop))
            assert noted.calls == every.calls[:number]


@pytest.mark.parametrize("hole", MASKS.values(), ids=MASKS)
def test_the_work_of_a_plan_is_bounded_as_the_plan_is(hole: Bool2D) -> None:
    assert plan_texture(hole).work <= MAX_WORK
    assert (plan_texture(hole).work > 0) == hole.any()
