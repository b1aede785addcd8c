from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from engines.manifest import Manifest
from service.core.batch_rows import Crop
from service.core.pictures import Box, Picture, Size
from service.imaging.preprocess import inpaint_sample, translate_sample
from tests.serving.fake_models import fake_manifest

RANDOM = np.random.default_rng(0)
WHOLE = Crop(Box(0, 0, 17, 23), Size(17, 23), Size(64, 64))


def manifest(task: str, channels: int = 3) -> Manifest:
    pixels = ["batch", channels, "height", "width"]
    image = {"name": "image", "dtype": "float32", "shape": pixels}
    mask = {"name": "mask", "dtype": "float32", "shape": ["batch", 1, "height", "width"]}
    return fake_manifest(
        "m",
        task,
        inputs=[image, mask] if task == "inpaint" else [image],
        output={"name": "output", "dtype": "float32", "shape": pixels},
        size={"kind": "fixed", "height": 64, "width": 64},
    )


INPAINT, GREY_INPAINT = manifest("inpaint"), manifest("inpaint", 1)


def picture(channels: int = 3, dtype: Any = np.uint8, size: tuple[int, int] = (17, 23)) -> Picture:
    return Picture(RANDOM.integers(0, np.iinfo(dtype).max + 1, (*size, channels), dtype))


def test_a_crop_is_cut_out_with_its_mask_and_both_are_contiguous() -> None:
    whole = picture(size=(100, 120))
    mask = RANDOM.random((100, 120)) < 0.2
    crop = Crop(Box(10, 20, 74, 84), Size(64, 64), Size(64, 64))
    sample = inpaint_sample(whole, mask, crop, INPAINT)
    assert sample.tile == Size(64, 64)
    np.testing.assert_array_equal(sample.arrays["image"], whole.pixels[10:74, 20:84])
    np.testing.assert_array_equal(sample.arrays["mask"], mask[10:74, 20:84])
    for array in sample.arrays.values():
        assert array.dtype == np.uint8
        assert array.flags.c_contiguous


def test_all_holes_in_the_box_are_marked_also_those_of_other_crops() -> None:
    mask = np.ones((17, 23), np.bool_)
    crop = Crop(WHOLE.box, WHOLE.scaled, WHOLE.tile, hole=np.zeros((17, 23), np.bool_))
    assert inpaint_sample(picture(), mask, crop, INPAINT).arrays["mask"].all()


@pytest.mark.parametrize("size", [(17, 23), (1, 23), (17, 1), (1, 1), (64, 64)], ids=str)
def test_image_and_mask_are_padded_by_the_same_reflection(size: tuple[int, int]) -> None:
    whole, mask = picture(size=size), RANDOM.random(size) < 0.3
    crop = Crop(Box(0, 0, *size), Size(*size), Size(64, 64))
    arrays = inpaint_sample(whole, mask, crop, INPAINT).arrays
    rows, columns = (np.abs((np.arange(64) + n - 1) % max(1, 2 * n - 2) - (n - 1)) for n in size)
    np.testing.assert_array_equal(arrays["image"], whole.pixels[rows][:, columns])
    np.testing.assert_array_equal(arrays["mask"], mask[rows][:, columns])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_channels_and_depth_become_the_models(dtype: Any) -> None:
    mask = np.zeros((17, 23), np.bool_)
    scale = 1 if dtype == np.uint8 else 257
    grey = Picture(np.full((17, 23, 1), 100 * scale, dtype))
    assert np.unique(inpaint_sample(grey, mask, WHOLE, INPAINT).arrays["image"]) == [100]
    assert inpaint_sample(grey, mask, WHOLE, INPAINT).arrays["image"].shape == (64, 64, 3)
    red = Picture((np.array([255, 0, 0]) * scale * np.ones((17, 23, 1))).astype(dtype))
    image = inpaint_sample(red, mask, WHOLE, GREY_INPAINT).arrays["image"]
    assert image.shape == (64, 64, 1)
    assert np.unique(image) == [76]


@settings(max_examples=60)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 64), st.integers(1, 64), st.integers(0, 99))
def test_scaling_marks_every_pixel_that_holds_a_part_of_a_hole(
    height: int, width: int, to_height: int, to_width: int, seed: int
) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < 0.03
    crop = Crop(Box(0, 0, height, width), Size(to_height, to_width), Size(to_height, to_width))
    sample = inpaint_sample(Picture(np.zeros((height, width, 3), np.uint8)), mask, crop, INPAINT)
    expected = np.zeros((to_height, to_width), np.bool_)
    for row in range(to_height):
        rows = slice(row * height // to_height, -(-(row + 1) * height // to_height))
        for column in range(to_width):
            columns = slice(column * width // to_width, -(-(column + 1) * width // to_width))
            expected[row, column] = mask[rows, columns].any()
    np.testing.assert_array_equal(sample.arrays["mask"], expected)


def test_masked_pixels_do_not_show_in_a_scaled_sample() -> None:
    mask = np.zeros((300, 300), np.bool_)
    mask[101:187, 95:203] = True
    pixels = np.full((300, 300, 3), 60, np.uint8)
    pixels[mask] = 255
    crop = Crop(Box(0, 0, 300, 300), Size(64, 64), Size(64, 64))
    arrays = inpaint_sample(Picture(pixels), mask, crop, INPAINT).arrays
    assert np.unique(arrays["image"][arrays["mask"] == 0]) == [60]


def test_shrinking_averages_and_enlarging_does_not_pixelate() -> None:
    stripes = Picture(np.tile(np.array([[[0], [200]]], np.uint8), (128, 64, 1)))
    mask = np.zeros((128, 128), np.bool_)
    shrunk = inpaint_sample(stripes, mask, Crop(Box(0, 0, 128, 128), Size(64, 64), Size(64, 64)), GREY_INPAINT)
    assert np.unique(shrunk.arrays["image"]) == [100]
    ramp = Picture(np.repeat(np.array([[[0], [240]]], np.uint8), 2, axis=0))
    large = inpaint_sample(ramp, mask[:2, :2], Crop(Box(0, 0, 2, 2), Size(64, 64), Size(64, 64)), GREY_INPAINT)
    assert len(np.unique(large.arrays["image"])) > 20


@pytest.mark.parametrize("channels", [1, 3])
def test_translation_resizes_as_pix2pix_does(channels: int) -> None:
    whole = picture(channels, size=(90, 120))
    crop = Crop(Box(0, 0, 90, 120), Size(64, 64), Size(64, 64))
    image = translate_sample(whole, crop, manifest("translate", channels)).arrays["image"]
    squeezed = whole.pixels.squeeze(2) if channels == 1 else whole.pixels
    expected = np.asarray(Image.fromarray(squeezed).resize((64, 64), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(image, expected.reshape(64, 64, channels))


def test_translation_pads_where_nothing_is_resized() -> None:
    whole = picture()
    sample = translate_sample(whole, WHOLE, manifest("translate"))
    assert set(sample.arrays) == {"image"}
    np.testing.assert_array_equal(sample.arrays["image"][:17, :23], whole.pixels)
    np.testing.assert_array_equal(sample.arrays["image"][17, :23], whole.pixels[15])
