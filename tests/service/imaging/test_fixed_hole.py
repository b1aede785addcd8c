"""A model with a fixed hole in its tile can fill any hole, which is moved and scaled onto the fixed one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.manifest import FixedSize, Manifest
from service.core.pictures import Box, Picture, Size
from service.imaging.crops import plan_crops
from service.imaging.fixed_hole import crop_onto_fixed_hole
from service.imaging.postprocess import paste_fills
from service.imaging.preprocess import inpaint_sample

RULE = FixedSize(height=128, width=128, fit="crop", hole=(32, 32, 96, 96))
CENTRE = Box(32, 32, 96, 96)
MakeManifest = Callable[..., Manifest]


def mask_of(size: tuple[int, int], *boxes: tuple[int, int, int, int]) -> np.ndarray:
    mask = np.zeros(size, np.bool_)
    for top, left, bottom, right in boxes:
        mask[top:bottom, left:right] = True
    return mask


def test_a_centred_hole_of_the_models_own_size_is_passed_as_it_is() -> None:
    (crop,) = plan_crops(mask_of((128, 128), (32, 32, 96, 96)), RULE, "auto")
    assert (crop.box, crop.scaled, crop.below, crop.right_of) == (Box(0, 0, 128, 128), Size(128, 128), 0, 0)


def test_a_hole_is_enlarged_until_it_fills_the_models() -> None:
    crop = crop_onto_fixed_hole(Box(100, 100, 116, 132), Size(400, 400), RULE, CENTRE)
    assert crop.box == Box(76, 84, 140, 148)
    assert crop.scaled == crop.tile == Size(128, 128)


def test_a_hole_in_the_corner_is_moved_to_the_centre_with_its_context_reflected(make_fixed: MakeManifest) -> None:
    mask = mask_of((300, 300), (0, 0, 64, 64))
    (crop,) = plan_crops(mask, RULE, "auto")
    assert (crop.box, crop.below, crop.right_of) == (Box(0, 0, 96, 96), 32, 32)
    pixels = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)
    sample = inpaint_sample(Picture(pixels), mask, crop, make_fixed())
    np.testing.assert_array_equal(sample.arrays["image"][32:, 32:], pixels[:96, :96])
    np.testing.assert_array_equal(sample.arrays["image"][31, 32:], pixels[1, :96])
    assert sample.arrays["mask"][32:96, 32:96].all()


@pytest.mark.parametrize("hole", [(0, 0, 64, 64), (236, 100, 300, 164), (120, 250, 170, 300), (0, 0, 200, 300)])
def test_a_tile_with_the_pictures_own_pixels_is_pasted_back_exactly(
    make_fixed: MakeManifest, hole: tuple[int, int, int, int]
) -> None:
    mask = mask_of((300, 300), hole)
    rows, columns = np.mgrid[:300, :300]
    picture = Picture(np.stack((rows * 0.8, columns * 0.8, 255 - rows * 0.4 - columns * 0.4), axis=2).astype(np.uint8))
    crops = plan_crops(mask, RULE, "auto")
    tiles = [inpaint_sample(picture, mask, crop, make_fixed()).arrays["image"] for crop in crops]
    filled = paste_fills(picture, mask, crops, tiles).pixels.astype(int)
    assert np.abs(filled - picture.pixels).max() <= 4, "smooth colours survive scaling, in the right place only"


@st.composite
def holes(draw: st.DrawFn) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
    height, width = draw(st.integers(1, 700)), draw(st.integers(1, 700))
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    return (height, width), (top, left, draw(st.integers(top + 1, height)), draw(st.integers(left + 1, width)))


@pytest.mark.parametrize("target", [(32, 32, 96, 96), (10, 40, 90, 70)])
@given(case=holes())
@settings(max_examples=300)
def test_any_hole_lands_inside_the_models_hole_with_its_aspect_kept(
    target: tuple[int, int, int, int], case: tuple[tuple[int, int], tuple[int, int, int, int]]
) -> None:
    size, hole = case
    rule = RULE.model_copy(update={"hole": target})
    crop = crop_onto_fixed_hole(Box(*hole), Size(*size), rule, Box(*target))
    height, width = crop.scaled
    assert 0 <= crop.below <= crop.below + height <= 128
    assert 0 <= crop.right_of <= crop.right_of + width <= 128
    assert crop.box.top <= hole[0] < hole[2] <= crop.box.bottom
    assert crop.box.left <= hole[1] < hole[3] <= crop.box.right
    down, across = height / crop.box.size.height, width / crop.box.size.width
    top, bottom = (crop.below + (row - crop.box.top) * down for row in (hole[0], hole[2]))
    left, right = (crop.right_of + (column - crop.box.left) * across for column in (hole[1], hole[3]))
    assert target[0] - 0.01 <= top < bottom <= target[2] + 0.01
    assert target[1] - 0.01 <= left < right <= target[3] + 0.01
    fills = max((bottom - top) / (target[2] - target[0]), (right - left) / (target[3] - target[1]))
    assert fills > 0.9, "it is as large as fits, but for rounding to whole pixels"


@pytest.mark.parametrize("strategy", ["auto", "crop", "whole"])
def test_several_holes_are_filled_and_nothing_else_is_touched(make_fixed: MakeManifest, strategy: str) -> None:
    mask = mask_of((350, 420), (5, 5, 40, 30), (150, 200, 250, 330), (330, 400, 350, 420))
    pixels = np.random.default_rng(1).integers(0, 200, (350, 420, 3), np.uint8)
    crops = plan_crops(mask, RULE, strategy)  # type: ignore[arg-type]  # parametrised
    tiles = []
    for crop in crops:
        sample = inpaint_sample(Picture(pixels), mask, crop, make_fixed())
        own = sample.arrays["mask"].astype(bool)
        assert own[32:96, 32:96].any()
        tiles.append(np.full((128, 128, 3), 255, np.uint8))
    filled = paste_fills(Picture(pixels), mask, crops, tiles).pixels
    np.testing.assert_array_equal(filled[~mask], pixels[~mask])
    assert (filled[200, 265] == 255).all()
    assert (filled[mask] != pixels[mask]).any(axis=1).all()


def test_a_model_without_a_mask_input_never_sees_the_masked_pixels(make_fixed: MakeManifest) -> None:
    mask = mask_of((200, 200), (60, 60, 124, 124), (60, 140, 70, 150))
    pixels = np.where(mask[:, :, None], 255, 40).astype(np.uint8).repeat(3, axis=2)
    crop = crop_onto_fixed_hole(Box(60, 60, 124, 124), Size(200, 200), RULE, CENTRE)
    manifest = make_fixed(with_mask=False)
    assert (inpaint_sample(Picture(pixels), mask, crop, manifest).arrays["image"] == 40).all()
    all_masked = inpaint_sample(Picture(pixels), np.ones_like(mask), crop, manifest)
    assert (all_masked.arrays["image"] == 128).all()


@pytest.fixture
def make_fixed(fake_manifest: MakeManifest) -> MakeManifest:
    def make(*, with_mask: bool = True) -> Manifest:
        manifest = fake_manifest("centred", "inpaint", size=RULE.model_dump())
        return manifest if with_mask else manifest.model_copy(update={"inputs": manifest.inputs[:1]})

    return make
