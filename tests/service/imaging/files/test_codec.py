from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from service.core.errors import InvalidImage, InvalidOption, TooLarge
from service.core.pictures import Picture, Size
from service.imaging.files.codec import MEDIA_TYPES, check_encodable, decode, decode_mask, encode, measure_brightness
from tests.serving import image_files as files
from tests.serving.sample_files import LIMIT, PHOTO, PROFILE, RANDOM, RGB, joined, noise, pillow


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [(17, 23), (1, 1), (1, 31), (40, 1)], ids=str)
def test_a_png_survives_decoding_and_encoding_bit_for_bit(dtype: Any, channels: int, size: tuple[int, int]) -> None:
    pixels = noise(dtype, channels, size)
    first = decode(files.png(pixels), max_pixels=LIMIT)
    second = decode(encode(first, "png", 1), max_pixels=LIMIT)
    for picture in (first, second):
        assert picture.pixels.shape[2] == (1 if channels < 3 else 3)
        assert picture.pixels.dtype == dtype
        np.testing.assert_array_equal(joined(picture), pixels)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [(17, 23), (1, 1), (2, 5)], ids=str)
def test_an_interlaced_png_has_the_same_pixels(dtype: Any, channels: int, size: tuple[int, int]) -> None:
    pixels = noise(dtype, channels, size)
    np.testing.assert_array_equal(joined(decode(files.interlaced_png(pixels), max_pixels=LIMIT)), pixels)


def test_our_png_is_read_alike_by_pillow() -> None:
    np.testing.assert_array_equal(pillow(encode(Picture(PHOTO), "png", 1), "RGB"), PHOTO)
    grey = noise(np.uint16, 1)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(encode(Picture(grey), "png", 1)))), grey[:, :, 0])


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_grey_of_few_bits_becomes_8_bit_grey(bits: int) -> None:
    values = RANDOM.integers(0, 2**bits, (7, 11))
    picture = decode(files.small_bits_png(values, bits, 0), max_pixels=LIMIT)
    np.testing.assert_array_equal(picture.pixels[:, :, 0], values * 255 // (2**bits - 1))
    assert picture.alpha is None


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_a_palette_becomes_rgb_and_its_transparency_alpha(bits: int) -> None:
    palette = RANDOM.integers(0, 256, (2**bits, 3), np.uint8)
    values = RANDOM.integers(0, 2**bits, (7, 11))
    plte = files.chunk(b"PLTE", palette.tobytes())
    opaque = decode(files.small_bits_png(values, bits, 3, plte), max_pixels=LIMIT)
    np.testing.assert_array_equal(opaque.pixels, palette[values])
    assert opaque.alpha is None
    clear = decode(files.small_bits_png(values, bits, 3, plte, files.chunk(b"tRNS", b"\x07")), max_pixels=LIMIT)
    np.testing.assert_array_equal(clear.pixels, palette[values])
    np.testing.assert_array_equal(clear.alpha, np.where(values == 0, 7, 255))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_transparent_colour_becomes_alpha(dtype: Any, channels: int) -> None:
    pixels = noise(dtype, channels)
    pixels[3, 4] = pixels[0, 0]
    key = files.chunk(b"tRNS", pixels[0, 0].astype(">u2").tobytes())
    picture = decode(files.png(pixels, key), max_pixels=LIMIT)
    np.testing.assert_array_equal(picture.pixels, pixels)
    assert picture.alpha is not None
    assert picture.alpha.dtype == dtype
    np.testing.assert_array_equal(picture.alpha == 0, (pixels == pixels[0, 0]).all(axis=2))
    assert picture.alpha.max() == np.iinfo(dtype).max


def test_a_transparent_grey_of_one_bit_becomes_alpha() -> None:
    values = RANDOM.integers(0, 2, (7, 11))
    picture = decode(files.small_bits_png(values, 1, 0, files.chunk(b"tRNS", b"\0\1")), max_pixels=LIMIT)
    np.testing.assert_array_equal(picture.alpha, np.where(values == 1, 0, 255))


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 1}], ids=str)
@pytest.mark.parametrize("size", [(17, 23), (1, 1), (64, 40)], ids=str)
def test_jpegs_decode_to_what_pillow_reads(options: dict[str, Any], size: tuple[int, int]) -> None:
    data = files.saved(PHOTO[: size[0], : size[1]], "JPEG", **options)
    np.testing.assert_array_equal(decode(data, max_pixels=LIMIT).pixels, pillow(data, "RGB"))


def test_a_grey_jpeg_stays_grey() -> None:
    data = files.saved(PHOTO[:, :, :1], "JPEG")
    picture = decode(data, max_pixels=LIMIT)
    np.testing.assert_array_equal(picture.pixels[:, :, 0], pillow(data, "L"))


def test_a_cmyk_jpeg_becomes_rgb_without_its_profile() -> None:
    data = files.cmyk_jpeg(noise(np.uint8, 4, (64, 64)), icc_profile=files.icc_profile(b"CMYK"))
    picture = decode(data, max_pixels=LIMIT)
    np.testing.assert_array_equal(picture.pixels, pillow(data, "RGB"))
    assert picture.icc is None


def test_a_cmyk_jpeg_with_one_full_plane_is_not_called_corrupt() -> None:
    data = files.cmyk_jpeg(noise(np.uint8, 4, (64, 64)), subsampling=2)
    with pytest.raises(InvalidImage, match="chroma subsampling is not supported; save it with 4:4:4"):
        decode(data, max_pixels=LIMIT)


def test_a_jpeg_that_stores_rgb_is_not_decoded_as_ycc() -> None:
    data = files.saved(PHOTO, "JPEG", keep_rgb=True)
    np.testing.assert_array_equal(decode(data, max_pixels=LIMIT).pixels, pillow(data, "RGB"))


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("lossless", [True, False])
def test_webp_decodes_to_what_pillow_reads(channels: int, lossless: bool) -> None:
    data = files.saved(noise(np.uint8, channels, (40, 33)), "WEBP", lossless=lossless, exact=True)
    picture = decode(data, max_pixels=LIMIT)
    np.testing.assert_array_equal(joined(picture), pillow(data, "RGB" if channels == 3 else "RGBA"))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_comes_out_upright(kind: str, orientation: int) -> None:
    data = files.saved(PHOTO[:40, :33], kind, exif=b"Exif\0\0" + files.exif(orientation))
    stored = pillow(data, "RGB")
    turns = {
        1: stored,
        2: stored[:, ::-1],
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.swapaxes(0, 1),
        6: np.rot90(stored, -1),
        7: np.rot90(stored, 2).swapaxes(0, 1),
        8: np.rot90(stored),
    }
    picture = decode(data, max_pixels=LIMIT)
    np.testing.assert_array_equal(picture.pixels, turns[orientation])
    assert picture.pixels.flags.c_contiguous


def test_alpha_is_turned_with_the_pixels() -> None:
    rgba = noise(np.uint8, 4)
    picture = decode(files.png(rgba, files.chunk(b"eXIf", files.exif(6))), max_pixels=LIMIT)
    np.testing.assert_array_equal(joined(picture), np.rot90(rgba, -1))


def test_a_picture_is_encoded_upright_without_orientation() -> None:
    data = files.saved(PHOTO, "JPEG", exif=b"Exif\0\0" + files.exif(6))
    again = encode(decode(data, max_pixels=LIMIT), "jpeg", 95)
    assert not Image.open(io.BytesIO(again)).getexif()
    assert decode(again, max_pixels=LIMIT).size == Size(PHOTO.shape[1], PHOTO.shape[0])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_colour_profile_is_kept_through_every_format(kind: str) -> None:
    picture = decode(files.saved(RGB, kind, icc_profile=PROFILE), max_pixels=LIMIT)
    assert picture.icc == PROFILE
    for format_ in MEDIA_TYPES:
        data = encode(picture, format_, 90)
        assert decode(data, max_pixels=LIMIT).icc == PROFILE
        assert Image.open(io.BytesIO(data)).info["icc_profile"] == PROFILE


def test_a_grey_profile_is_kept_where_the_file_stays_grey() -> None:
    grey_profile = files.icc_profile(b"GRAY")
    picture = Picture(RGB[:, :, :1].copy(), None, grey_profile)
    kept = {format_: decode(encode(picture, format_, 90), max_pixels=LIMIT).icc for format_ in MEDIA_TYPES}
    assert kept == {"png": grey_profile, "jpeg": grey_profile, "webp": None}


@pytest.mark.parametrize(("quality", "factor"), [(89, 2), (90, 1)])
def test_jpegs_of_high_quality_keep_full_colour_resolution(quality: int, factor: int) -> None:
    data = encode(Picture(PHOTO), "jpeg", quality)
    assert data[data.index(b"\xff\xc0") + 11] == 16 * factor + factor


def test_quality_is_obeyed_by_jpeg_and_webp_and_ignored_by_png() -> None:
    lengths = {f: [len(encode(Picture(PHOTO), f, quality)) for quality in (10, 95)] for f in MEDIA_TYPES}
    assert lengths["jpeg"][0] * 2 < lengths["jpeg"][1]
    assert lengths["webp"][0] * 2 < lengths["webp"][1]
    assert lengths["png"][0] == lengths["png"][1]


def test_jpeg_drops_alpha_and_16_bits_and_webp_the_bits_only() -> None:
    pixels = np.full((17, 23, 3), 40_000, np.uint16)
    alpha = np.full((17, 23), 65_535, np.uint16)
    jpeg = decode(encode(Picture(pixels, alpha), "jpeg", 100), max_pixels=LIMIT)
    assert jpeg.alpha is None
    assert abs(int(jpeg.pixels[0, 0, 0]) - 156) <= 1  # 40,000 / 257
    webp = decode(encode(Picture(pixels, alpha // 2), "webp", 100), max_pixels=LIMIT)
    assert webp.alpha is not None
    assert webp.alpha[0, 0] == 127
    assert abs(int(webp.pixels[0, 0, 0]) - 156) <= 2


def test_webp_keeps_the_colours_under_transparent_pixels() -> None:
    picture = Picture(np.full((16, 16, 3), 200, np.uint8), np.zeros((16, 16), np.uint8))
    again = decode(encode(picture, "webp", 90), max_pixels=LIMIT)
    assert again.pixels.min() > 190


@pytest.mark.parametrize(("format_", "limit"), [("webp", 16_383), ("jpeg", 65_500)])
def test_a_picture_too_large_for_the_format_is_an_option_error(format_: Any, limit: int) -> None:
    check_encodable(Size(1, limit), format_)
    with pytest.raises(InvalidOption, match=f"at most {limit:,} pixels a side") as raised:
        encode(Picture(np.zeros((1, limit + 1, 3), np.uint8)), format_, 90)
    assert raised.value.code == "format_too_small"


def mask_of(pixels: NDArray[Any], mode: Any) -> NDArray[np.bool_]:
    return decode_mask(files.png(pixels), mode, max_pixels=LIMIT)


@pytest.mark.parametrize(("dtype", "half"), [(np.uint8, 128), (np.uint16, 32_768)])
@pytest.mark.parametrize("channels", [1, 3])
def test_white_fills_from_the_middle_up_and_black_below_it(dtype: Any, half: int, channels: int) -> None:
    values = np.array([0, half - 1, half, 2 * half - 1], dtype).reshape(1, 4, 1).repeat(channels, axis=2)
    np.testing.assert_array_equal(mask_of(values, "white"), [[False, False, True, True]])
    np.testing.assert_array_equal(mask_of(values, "black"), [[True, True, False, False]])


def test_coloured_masks_count_by_luminance() -> None:
    red_green = np.array([[[255, 0, 0], [0, 255, 0]]], np.uint8)
    np.testing.assert_array_equal(mask_of(red_green, "white"), [[False, True]])


def test_alpha_zero_and_nothing_else_is_filled() -> None:
    pixels = noise(np.uint8, 4, (1, 3))
    pixels[0, :, 3] = (0, 1, 255)
    np.testing.assert_array_equal(mask_of(pixels, "alpha"), [[True, False, False]])
    pixels[:, :, :3] = 255
    assert mask_of(pixels, "white").all()


def test_a_mask_without_alpha_cannot_be_used_in_alpha_mode() -> None:
    with pytest.raises(InvalidOption, match="this one has none") as raised:
        mask_of(RGB, "alpha")
    assert (raised.value.status, raised.value.code) == (422, "no_alpha")


def test_masks_are_turned_upright_too() -> None:
    pixels = np.zeros((4, 6, 1), np.uint8)
    pixels[0, 5] = 255
    mask = decode_mask(files.png(pixels, files.chunk(b"eXIf", files.exif(6))), "white", max_pixels=LIMIT)
    assert mask.shape == (6, 4)
    assert mask[5, 3]
    assert mask.sum() == 1


def test_one_bit_and_palette_masks_work() -> None:
    values = np.array([[0, 1, 1]])
    assert decode_mask(files.small_bits_png(values, 1, 0), "white", max_pixels=9).tolist() == [[False, True, True]]
    palette = files.chunk(b"PLTE", bytes((255,) * 3 + (0,) * 3))
    data = files.small_bits_png(values, 1, 3, palette)
    assert decode_mask(data, "white", max_pixels=9).tolist() == [[True, False, False]]


def test_the_brightness_of_a_mask_is_that_of_its_luminance() -> None:
    zeros_and_ones = np.eye(4, dtype=np.uint8)[:, :, None]
    assert measure_brightness(files.png(zeros_and_ones), max_pixels=LIMIT) == (0, 1, 128)
    assert measure_brightness(files.png(zeros_and_ones.repeat(3, axis=2)), max_pixels=LIMIT) == (0, 1, 128)
    assert measure_brightness(files.png(zeros_and_ones.astype(np.uint16)), max_pixels=LIMIT) == (0, 1, 32_768)
    red = np.array([[[255, 0, 0], [0, 0, 0]]], np.uint8)
    assert measure_brightness(files.png(red), max_pixels=LIMIT) == (0, 76, 128)


def test_the_pixel_limit_holds_for_masks() -> None:
    with pytest.raises(TooLarge):
        decode_mask(files.png_bomb(), "white", max_pixels=LIMIT)
