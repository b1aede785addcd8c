from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from engines.manifest import Manifest, MultipleSize, SizeRule
from service.core.batch_rows import Crop
from service.core.pictures import Box, Picture, Size
from service.imaging.crops import plan_crops, plan_whole
from service.imaging.files.codec import decode, decode_mask, encode
from service.imaging.pasting.areas import FEATHER, MAX_FEATHER, paste_areas
from service.imaging.postprocess import paste_fills, translated_picture
from tests.serving import image_files as files

RULE = MultipleSize(multiple_of=128, sides=(256, 512))
LIMIT = 50_000_000
RANDOM = np.random.default_rng(0)


def noise(dtype: Any, channels: int, size: tuple[int, int]) -> NDArray[Any]:
    return RANDOM.integers(0, np.iinfo(dtype).max + 1, (*size, channels), dtype)


def scattered(size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return a mask with an ellipse, a line, a border strip and dots."""
    height, width = size
    mask = np.zeros(size, np.uint8)
    cv2.ellipse(mask, (width // 2, height // 2), (1 + width // 6, 1 + height // 9), 30, 0, 360, 1, -1)
    cv2.line(mask, (0, 0), (width // 3, height - 1), 1, 3)
    mask[-1, : width // 2] = 1
    mask[RANDOM.integers(0, height, 20), RANDOM.integers(0, width, 20)] = 1
    return mask.astype(np.bool_)


def filled(picture: Picture, mask: NDArray[np.bool_], value: int = 99, rule: SizeRule = RULE) -> Picture:
    crops = plan_crops(mask, rule, "auto")
    return paste_fills(picture, mask, crops, [np.full((*crop.tile, 3), value, np.uint8) for crop in crops])


KINDS = {
    "grey": (np.uint8, 1),
    "grey with alpha": (np.uint8, 2),
    "rgb": (np.uint8, 3),
    "rgba": (np.uint8, 4),
    "grey of 16 bits": (np.uint16, 1),
    "grey with alpha of 16 bits": (np.uint16, 2),
    "rgb of 16 bits": (np.uint16, 3),
    "rgba of 16 bits": (np.uint16, 4),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(17, 23), (601, 799), (1, 1000), (1000, 1), (513, 512)], ids=str)
def test_a_png_is_bit_identical_outside_the_mask_from_file_to_file(kind: str, size: tuple[int, int]) -> None:
    pixels, mask = noise(*KINDS[kind], size), scattered(size)
    result = decode(encode(filled(decode(files.png(pixels), max_pixels=LIMIT), mask), "png", 1), max_pixels=LIMIT)
    after = result.pixels if result.alpha is None else np.dstack((result.pixels, result.alpha))
    assert after.dtype == pixels.dtype
    np.testing.assert_array_equal(after[~mask], pixels[~mask])
    colours = pixels.shape[2] - (pixels.shape[2] % 2 == 0)
    assert (after[mask][:, :colours] != pixels[mask][:, :colours]).any(axis=1).mean() > 0.9
    if result.alpha is not None:
        np.testing.assert_array_equal(after[:, :, -1], pixels[:, :, -1])


def test_twelve_megapixels_are_bit_identical_outside_the_mask() -> None:
    pixels, mask = noise(np.uint8, 3, (3000, 4000)), scattered((3000, 4000))
    result = decode(encode(filled(Picture(pixels), mask), "png", 1), max_pixels=LIMIT)
    np.testing.assert_array_equal(result.pixels[~mask], pixels[~mask])


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_palette_pictures_are_bit_identical_outside_the_mask(bits: int) -> None:
    palette = RANDOM.integers(0, 256, (2**bits, 3), np.uint8)
    values, mask = RANDOM.integers(0, 2**bits, (60, 71)), scattered((60, 71))
    data = files.small_bits_png(values, bits, 3, files.chunk(b"PLTE", palette.tobytes()))
    result = decode(encode(filled(decode(data, max_pixels=LIMIT), mask), "png", 1), max_pixels=LIMIT)
    np.testing.assert_array_equal(result.pixels[~mask], palette[values][~mask])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_turned_pictures_are_bit_identical_outside_the_mask(kind: str, orientation: int) -> None:
    data = files.saved(noise(np.uint8, 3, (60, 71)), kind, exif=b"Exif\0\0" + files.exif(orientation))
    picture = decode(data, max_pixels=LIMIT)
    stored_mask = scattered((60, 71))[:, :, None] * np.uint8(255)
    mask_file = files.png(stored_mask, files.chunk(b"eXIf", files.exif(orientation)))
    mask = decode_mask(mask_file, "white", max_pixels=LIMIT)
    assert picture.size == Size(*mask.shape) == (Size(60, 71) if orientation < 5 else Size(71, 60))
    result = decode(encode(filled(picture, mask), "png", 1), max_pixels=LIMIT)
    np.testing.assert_array_equal(result.pixels[~mask], picture.pixels[~mask])


def test_the_uploaded_picture_is_not_modified_and_its_profile_is_kept() -> None:
    pixels = noise(np.uint8, 3, (40, 50))
    before = pixels.copy()
    result = filled(Picture(pixels, None, b"profile"), scattered((40, 50)))
    np.testing.assert_array_equal(pixels, before)
    assert result.icc == b"profile"


def test_the_fill_is_the_models_away_from_the_seam() -> None:
    mask = np.zeros((100, 100), np.bool_)
    mask[30:70, 30:70] = True
    inner = filled(Picture(noise(np.uint8, 3, (100, 100))), mask).pixels[30 + FEATHER : 70 - FEATHER, 35:65]
    assert np.unique(inner).tolist() == [99]


def test_the_seam_leads_from_the_nearest_known_colour_to_the_fill() -> None:
    pixels = np.full((100, 100, 1), 20, np.uint8)
    mask = np.zeros((100, 100), np.bool_)
    mask[:, 40:] = True
    pixels[mask] = 255  # the object to remove, or brush strokes: it must not show
    row = filled(Picture(pixels), mask, 120).pixels[50, :, 0]
    assert row[39] == 20
    steps = row[40 : 40 + FEATHER].tolist()
    assert steps == sorted(steps)
    assert 20 < steps[0] < steps[-1] < 120
    assert set(row[40 + FEATHER :].tolist()) == {120}


def test_a_hole_of_one_pixel_takes_part_of_its_neighbours() -> None:
    mask = np.zeros((9, 9), np.bool_)
    mask[4, 4] = True
    result = filled(Picture(np.full((9, 9, 3), 10, np.uint8)), mask, 110)
    assert result.pixels[4, 4].tolist() == [30, 30, 30]  # 1/5 of the fill, 4/5 of the neighbour


def test_without_known_pixels_the_fill_is_not_blended() -> None:
    result = filled(Picture(noise(np.uint8, 3, (20, 20))), np.ones((20, 20), np.bool_))
    assert np.unique(result.pixels).tolist() == [99]


def test_the_seam_is_wider_where_the_tile_was_scaled_up() -> None:
    mask = np.zeros((2000, 2000), np.bool_)
    mask[300:1700, 300:1700] = True
    row = filled(Picture(np.zeros((2000, 2000, 3), np.uint8)), mask).pixels[1000, :, 0]
    assert (row[300 : 300 + MAX_FEATHER] < 99).all()
    assert row[300 + MAX_FEATHER] == 99


def test_each_crop_fills_its_own_holes_only() -> None:
    mask = np.zeros((50, 60), np.bool_)
    mask[10:14, 10:50] = True
    left = mask.copy()
    left[:, 30:] = False
    box = Box(0, 0, 50, 60)
    crops = [Crop(box, box.size, Size(64, 64), hole) for hole in (left, mask & ~left, np.zeros_like(mask))]
    tiles = [np.full((64, 64, 3), value, np.uint8) for value in (50, 150, 250)]
    known = np.full((50, 60, 3), 100, np.uint8)
    result = paste_fills(Picture(known), mask, crops, tiles).pixels[:, :, 0]
    assert result[10:14, 10:30].max() < 100
    assert result[10:14, 30:50].min() > 100
    assert result.max() < 200


def test_paste_areas_can_be_computed_before_the_tiles() -> None:
    size = (700, 900)
    picture, mask = Picture(noise(np.uint8, 3, size)), scattered(size)
    crops = plan_crops(mask, RULE, "crop")
    tiles = [noise(np.uint8, 3, crop.tile) for crop in crops]
    known = paste_fills(picture, mask, crops, tiles, [paste_areas(mask, crop) for crop in crops])
    assert len(crops) > 1
    assert np.array_equal(known.pixels, paste_fills(picture, mask, crops, tiles).pixels)


def test_a_crop_that_fills_nothing_has_no_paste_area() -> None:
    crop = Crop(Box(0, 0, 64, 64), Size(64, 64), Size(256, 256))
    assert paste_areas(np.zeros((64, 64), np.bool_), crop) == []


def test_a_scaled_tile_lands_where_it_came_from() -> None:
    ramp = np.tile(np.arange(256, dtype=np.uint8).repeat(4)[None, :, None], (1024, 1, 3))
    mask = np.zeros((1024, 1024), np.bool_)
    mask[300:800, 200:900] = True
    crop = plan_whole(Size(1024, 1024), RULE)
    tile = np.asarray(cv2.resize(ramp, (512, 512), interpolation=cv2.INTER_AREA), np.uint8)
    result = paste_fills(Picture(ramp), mask, [crop], [tile])
    assert np.abs(result.pixels.astype(int) - ramp).max() <= 2


@pytest.mark.parametrize(("dtype", "opaque"), [(np.uint8, 255), (np.uint16, 65_535)])
def test_an_erased_region_becomes_opaque_and_any_other_alpha_is_kept(dtype: Any, opaque: int) -> None:
    mask = np.zeros((20, 20), np.bool_)
    mask[5:9, 5:9] = True
    pixels = np.zeros((20, 20, 3), dtype)
    erased = np.where(mask, 0, 7).astype(dtype)
    alpha = filled(Picture(pixels, erased), mask).alpha
    assert alpha is not None
    assert alpha.dtype == dtype
    np.testing.assert_array_equal(alpha, np.where(mask, opaque, 7))
    faint = erased.copy()
    faint[5, 5] = 1
    np.testing.assert_array_equal(filled(Picture(pixels, faint), mask).alpha, faint)


def test_a_grey_model_fills_a_colour_picture_and_the_other_way_round() -> None:
    mask = np.zeros((20, 20), np.bool_)
    mask[8:, 8:] = True
    crops = plan_crops(mask, RULE, "auto")
    grey_tile = [np.full((256, 256, 1), 50, np.uint8)]
    assert (
        paste_fills(Picture(noise(np.uint8, 3, (20, 20))), mask, crops, grey_tile).pixels[-1, -1].tolist() == [50] * 3
    )
    red = np.zeros((256, 256, 3), np.uint8)
    red[:, :, 0] = 255
    result = paste_fills(Picture(noise(np.uint16, 1, (20, 20))), mask, crops, [red])
    assert result.pixels[-1, -1].tolist() == [76 * 257]


def translator(channels: int) -> Manifest:
    root = Path(__file__).resolve().parents[3]
    values = Manifest.model_validate_json((root / "models/facades/2/manifest.json").read_bytes())
    output = values.output.model_copy(update={"shape": ("batch", channels, 256, 256)})
    return values.model_copy(update={"output": output})


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_translation_has_the_pictures_size_8_bits_and_the_models_channels(channels: int, dtype: Any) -> None:
    alpha = noise(dtype, 1, (90, 120))[:, :, 0]
    picture = Picture(noise(dtype, 3, (90, 120)), alpha, b"profile")
    manifest = translator(channels)
    crop = plan_whole(picture.size, manifest.size)
    result = translated_picture(picture, crop, np.full((256, 256, channels), 77, np.uint8), manifest)
    assert result.pixels.shape == (90, 120, channels)
    assert result.pixels.dtype == np.uint8
    assert np.unique(result.pixels).tolist() == [77]
    assert result.icc is None
    assert result.alpha is not None
    np.testing.assert_array_equal(result.alpha, alpha if dtype == np.uint8 else np.round(alpha / 257))


def test_a_padded_translation_is_cut_back_without_scaling() -> None:
    tile = noise(np.uint8, 3, (256, 256))
    picture = Picture(noise(np.uint8, 3, (100, 90)))
    crop = plan_whole(picture.size, RULE)
    result = translated_picture(picture, crop, tile, translator(3))
    np.testing.assert_array_equal(result.pixels, tile[:100, :90])
    assert result.alpha is None
