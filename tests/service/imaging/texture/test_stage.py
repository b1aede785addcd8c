"""The texture stage copies known pixels into the hole, changes nothing else, and works on every picture."""

from __future__ import annotations

import numpy as np
import pytest

from service.imaging.pool.parallel_steps import HelperThreads, run_sequentially
from service.imaging.texture.parameters import Parameters
from service.imaging.texture.patch_match import CompiledKernel
from service.imaging.texture.stage import Rgb, add_texture
from tests.service.imaging.texture.textured import Filled, textured

MIDDLE = (slice(20, 44), slice(20, 44))


def painted(picture: Filled, kernel: CompiledKernel, seed: int = 0) -> Rgb:
    found = add_texture(picture.fill, picture.hole, kernel, Parameters(seed=seed))
    assert found is not None
    return found


def fineness(pixels: Rgb, picture: Filled) -> float:
    """Return the mean absolute difference of horizontal and vertical neighbours in the hole."""
    values = pixels[..., 0].astype(float)
    steps = np.abs(np.diff(values, axis=1))[:-1] + np.abs(np.diff(values, axis=0))[:, :-1]
    return float(steps[picture.hole[:-1, :-1]].mean())


def test_a_blurred_fill_gets_the_texture_of_what_is_around_it(kernel: CompiledKernel) -> None:
    picture = textured(64, 64, MIDDLE)
    wanted = fineness(picture.truth, picture)
    assert fineness(picture.fill, picture) < 0.2 * wanted
    assert 0.6 * wanted < fineness(painted(picture, kernel), picture) < 1.2 * wanted


def test_the_light_stays_where_the_net_put_it(kernel: CompiledKernel) -> None:
    picture = textured(64, 128, (slice(16, 48), slice(8, 120)))
    columns = painted(picture, kernel)[16:48, 8:120, 0].mean(0)
    assert columns[-16:].mean() - columns[:16].mean() > 40


def test_colours_come_from_the_known_part_alone(kernel: CompiledKernel) -> None:
    """The fill, here red, guides the search, but no pixel of it is copied."""
    picture = textured(64, 64, MIDDLE)
    red = np.where(picture.hole[..., None], np.array((255, 0, 0), np.uint8), picture.truth)
    found = add_texture(red, picture.hole, kernel, Parameters(low_share=0))
    assert found is not None
    assert np.array_equal(found[..., 0], found[..., 1])
    assert np.array_equal(found[..., 0], found[..., 2])


def test_texture_comes_from_nearby_if_distant_patches_look_the_same(kernel: CompiledKernel) -> None:
    """The texture is the same everywhere, but redder to the right, so that the red shows where a pixel came from."""
    noise = np.tile(np.random.default_rng(0).integers(90, 130, (96, 96), np.uint8), 4)
    truth = np.repeat(noise[..., None], 3, 2)
    truth[:, 192:, 0] += 2
    hole = np.zeros(noise.shape, np.bool_)
    hole[32:64, 24:56] = True

    def redness(nearness: float) -> float:
        chosen = [Parameters(low_share=0, nearness=nearness, seed=seed) for seed in range(8)]
        found = [add_texture(truth, hole, kernel, one) for one in chosen]
        return float(np.mean([one[hole][:, 0].astype(int) - one[hole][:, 1] for one in found if one is not None]))

    assert redness(Parameters().nearness) < 0.1
    assert redness(0) > 0.4


def test_a_deep_hole_is_not_filled_with_the_nearest_rows_again_and_again(kernel: CompiledKernel) -> None:
    """The texture has a period of 16 rows, each period redder, so that the red shows which one a pixel came from."""
    noise = np.tile(np.random.default_rng(0).integers(90, 130, (16, 96), np.uint8), (8, 1))
    truth = np.repeat(noise[..., None], 3, 2)
    truth[..., 0] += np.arange(128, dtype=np.uint8)[:, None] // 16
    hole = np.zeros(noise.shape, np.bool_)
    hole[64:] = True
    flat = np.where(hole[..., None], truth[48:64].mean((0, 1)).astype(np.uint8), truth)

    def nearest(**penalties: float) -> float:
        found = add_texture(flat, hole, kernel, Parameters(low_share=0, **penalties))
        assert found is not None
        return float((found[hole][:, 0].astype(int) - found[hole][:, 1] == 3).mean())

    assert nearest(crowding=0, crowding_flat=0) > 0.95
    assert nearest(crowding=1, crowding_flat=0.002) < 0.7


SIZES = [(64, 64), (65, 64), (63, 61), (31, 97)]
HOLES = {
    "one pixel": (slice(9, 10), slice(9, 10)),
    "a few pixels": (slice(10, 12), slice(8, 11)),
    "a box": (slice(8, 20), slice(8, 24)),
    "the corner": (slice(0, 9), slice(0, 9)),
    "the last corner": (slice(-9, None), slice(-9, None)),
    "the last row": (slice(-1, None), slice(None)),
    "the first columns": (slice(None), slice(0, 7)),
}


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("place", HOLES.values(), ids=HOLES)
def test_every_pixel_of_the_hole_is_redrawn_and_no_other(kernel: CompiledKernel, size, place) -> None:
    picture = textured(*size, place)
    black = np.where(picture.hole[..., None], np.uint8(0), picture.truth)
    found = add_texture(black, picture.hole, kernel, Parameters(low_share=0))
    assert found is not None
    assert np.array_equal(found[~picture.hole], picture.truth[~picture.hole])
    assert found[picture.hole].min() >= picture.truth.min() > 0


@pytest.mark.parametrize("helpers", [1, 3])
def test_several_threads_give_the_same_bytes(kernel: CompiledKernel, helpers: int) -> None:
    picture = textured(160, 200, (slice(8, 150), slice(8, 150)))  # 20,000 targets, which are divided into five parts
    threads = HelperThreads(helpers, lambda: helpers)
    helped = [add_texture(picture.fill, picture.hole, kernel, run_steps=threads.run_with_helpers) for _ in range(3)]
    threads.close()
    assert all(np.array_equal(one, painted(picture, kernel)) for one in helped)


def test_large_holes_are_searched_in_parts(kernel: CompiledKernel) -> None:
    counts = []

    def counted(pieces):
        counts.append(len(pieces))
        return run_sequentially(pieces)

    picture = textured(160, 200, (slice(8, 150), slice(8, 150)))
    add_texture(picture.fill, picture.hole, kernel, run_steps=counted)
    assert counts.count(5) >= 6  # the sweeps and votes at full size use all five


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**40])
def test_the_same_seed_gives_the_same_bytes(kernel: CompiledKernel, seed: int) -> None:
    picture = textured(64, 64, MIDDLE)
    assert np.array_equal(painted(picture, kernel, seed), painted(picture, kernel, seed))


def test_another_seed_gives_other_bytes(kernel: CompiledKernel) -> None:
    picture = textured(64, 64, MIDDLE)
    assert not np.array_equal(painted(picture, kernel, 0), painted(picture, kernel, 1))


NOTHING_TO_COPY = {
    "no hole": textured(64, 64),
    "everything is hole": textured(64, 64, (slice(None), slice(None))),
    "49 patches are known": textured(64, 64, (slice(11, None), slice(None)), (slice(None), slice(11, None))),
    "smaller than a patch": textured(4, 90, (slice(1, 2), slice(20, 30))),
    "one row": textured(1, 64, (slice(None), slice(20, 30))),
    "one pixel": textured(1, 1, (slice(None), slice(None))),
}


@pytest.mark.parametrize("picture", NOTHING_TO_COPY.values(), ids=NOTHING_TO_COPY)
def test_without_known_patches_nothing_is_copied(kernel: CompiledKernel, picture: Filled) -> None:
    assert add_texture(picture.fill, picture.hole, kernel) is None


@pytest.mark.parametrize("size", [(4, 65_000), (65_000, 4), (1, 1)])
def test_a_picture_in_which_no_patch_fits_takes_no_memory_for_the_stage(
    kernel: CompiledKernel, size: tuple[int, int]
) -> None:
    def steps_begin(_: object) -> list[object]:
        raise AssertionError("the stage computed something")

    hole = np.zeros(size, np.bool_)
    hole[:1, :1] = True
    assert add_texture(np.zeros((*size, 3), np.uint8), hole, kernel, run_steps=steps_begin) is None


def test_patches_that_are_too_few_at_half_size_are_searched_at_full_size(kernel: CompiledKernel) -> None:
    rest = (slice(17, None), slice(None)), (slice(None), slice(17, None))  # 13² known patches, 4² at half size
    picture = textured(64, 64, *rest)
    assert fineness(painted(picture, kernel), picture) > 2 * fineness(picture.fill, picture)


def test_the_fill_that_is_passed_is_not_written_to(kernel: CompiledKernel) -> None:
    picture = textured(64, 64, MIDDLE)
    before = picture.fill.copy()
    painted(picture, kernel)
    assert np.array_equal(picture.fill, before)


def test_a_part_of_the_hole_is_redrawn_and_nothing_is_copied_from_the_rest(kernel: CompiledKernel) -> None:
    picture = textured(64, 64, MIDDLE)
    redrawn = picture.hole.copy()
    redrawn[:, 32:] = False
    red = np.where(picture.hole[..., None], np.array((255, 0, 0), np.uint8), picture.truth)
    found = add_texture(red, picture.hole, kernel, Parameters(low_share=0), redrawn=redrawn)
    assert found is not None
    assert np.array_equal(found[~redrawn], red[~redrawn])
    assert np.array_equal(found[redrawn][:, 0], found[redrawn][:, 1])
