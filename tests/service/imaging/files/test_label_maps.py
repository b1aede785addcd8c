"""Class and instance ids are decoded exactly from every kind of PNG."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from service.core.batch_rows import Crop
from service.core.errors import InvalidImage, InvalidOption, ServiceError, TooLarge
from service.core.pictures import Box, Size
from service.imaging.files.label_maps import decode_ids, decode_labels, fit_ids_to_tile
from tests.serving.image_files import chunk, png, saved, small_bits_png

LIMIT = 10_000
RANDOM = np.random.default_rng(0)


def ids_of(data: bytes) -> NDArray[Any]:
    return decode_ids(data, max_pixels=LIMIT)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("channels", [1, 2], ids=["grey", "grey with alpha"])
def test_every_grey_value_is_an_id(bits: int, channels: int) -> None:
    pixels = RANDOM.integers(0, 2**bits, (20, 30, channels), np.uint8 if bits == 8 else np.uint16)
    np.testing.assert_array_equal(ids_of(png(pixels)), pixels[:, :, 0])


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("colour_type", [0, 3], ids=["grey", "palette"])
def test_few_bits_are_not_stretched(bits: int, colour_type: int) -> None:
    values = RANDOM.integers(0, 2**bits, (9, 13))
    extra = (chunk(b"PLTE", bytes(range(3 * 2**bits))),) if colour_type == 3 else ()
    np.testing.assert_array_equal(ids_of(small_bits_png(values, bits, colour_type, *extra)), values)


@pytest.mark.parametrize("transparency", [b"", b"\0" * 7])
def test_a_palette_is_for_people_and_its_indices_are_the_ids(transparency: bytes) -> None:
    values = RANDOM.integers(0, 256, (9, 13), np.uint8)
    image = Image.fromarray(values, "L")
    image.putpalette(bytes(RANDOM.integers(0, 256, 768, np.uint8)))
    file = io.BytesIO()
    image.save(file, "PNG", **({"transparency": transparency} if transparency else {}))
    assert Image.open(io.BytesIO(file.getvalue())).mode == "P"
    np.testing.assert_array_equal(ids_of(file.getvalue()), values)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (saved(np.zeros((8, 8), np.uint8), "JPEG"), "JPEG, which does not keep ids exact"),
        (saved(np.zeros((8, 8, 3), np.uint8), "WEBP"), "WEBP, which does not keep ids exact"),
        (png(np.zeros((8, 8, 3), np.uint8)), "RGB PNG, whose colours are not ids"),
        (png(np.zeros((8, 8, 4), np.uint16)), "RGB PNG"),
    ],
)
def test_files_that_hold_no_ids_are_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(ServiceError, match=said) as caught:
        ids_of(data)
    assert (caught.value.status, caught.value.code) == (415, "not_ids")


def test_broken_and_huge_files_are_refused_as_pictures_are() -> None:
    good = png(np.zeros((50, 50, 1), np.uint16))
    with pytest.raises(InvalidImage):
        ids_of(good[:-30])
    with pytest.raises(TooLarge):
        decode_ids(good, max_pixels=100)


def test_the_largest_unknown_class_is_named() -> None:
    labels = np.zeros((4, 4, 1), np.uint8)
    labels[1, 1], labels[2, 2] = 34, 40
    with pytest.raises(InvalidOption, match="has the class id 40; the model's classes are 0 to 34") as caught:
        decode_labels(png(labels), 35, max_pixels=LIMIT)
    assert caught.value.code == "unknown_class"
    assert decode_labels(png(labels), 41, max_pixels=LIMIT).pixels.max() == 40
    with pytest.raises(InvalidOption, match="the class id 256; the model's classes are 0 to 255"):
        decode_labels(png(np.full((4, 4, 1), 256, np.uint16)), None, max_pixels=LIMIT)


@pytest.mark.parametrize("size", [(7, 5), (16, 16), (33, 90)], ids=str)
def test_ids_are_scaled_as_pillow_does_without_new_ones(size: tuple[int, int]) -> None:
    ids = RANDOM.integers(0, 65536, (23, 31)).astype(np.int32)
    scaled = fit_ids_to_tile(ids, Crop(Box(0, 0, 23, 31), Size(*size), Size(*size)))
    wanted = np.asarray(Image.fromarray(ids, "I").resize((size[1], size[0]), Image.Resampling.NEAREST))
    np.testing.assert_array_equal(scaled, wanted)


def test_what_is_not_scaled_is_padded_by_reflection() -> None:
    ids = np.arange(6, dtype=np.int32).reshape(2, 3)
    tile = fit_ids_to_tile(ids, Crop(Box(0, 0, 2, 3), Size(2, 3), Size(4, 5)))
    assert tile.tolist() == [[0, 1, 2, 1, 0], [3, 4, 5, 4, 3], [0, 1, 2, 1, 0], [3, 4, 5, 4, 3]]
    assert tile.flags.c_contiguous
