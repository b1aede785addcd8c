from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest
import simplejpeg
from PIL import Image

from service.core.picture_work import JpegPlanes
from service.imaging.files.hardware_jpeg import hardware_planes, is_sound
from service.imaging.files.header import read_header

PHOTOGRAPH = Path("tests/data/dress.jpg")
COMPONENTS = b"\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"
"""The components in the frame header of a file that Pillow wrote."""


def encoded(mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    with Image.open(PHOTOGRAPH) as image:
        image.resize((125, 97)).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def planes(data: bytes) -> JpegPlanes | None:
    return hardware_planes(data, read_header(data, max_pixels=10**6))


@pytest.mark.parametrize(("subsampling", "factors"), [(0, (1, 1)), (1, (2, 1)), (2, (2, 2))])
def test_a_baseline_file_of_known_subsampling_is_decoded_in_hardware(
    subsampling: int, factors: tuple[int, int]
) -> None:
    assert planes(encoded(subsampling=subsampling)) == (97, 125, *factors)
    assert planes(encoded(subsampling=subsampling, restart_marker_blocks=3)) == (97, 125, *factors)


def test_a_thumbnail_in_the_files_metadata_is_no_second_scan() -> None:
    data = encoded(subsampling=2, comment=encoded())
    assert data.count(b"\xff\xda") == 2
    assert planes(data) == (97, 125, 2, 2)


@pytest.mark.parametrize(
    "data",
    [
        encoded(progressive=True),
        encoded("L"),
        encoded("CMYK"),
        encoded().replace(COMPONENTS, COMPONENTS.replace(b"\x22", b"\x12")),
        encoded().replace(COMPONENTS, b"\x03R\x22\x00G\x11\x01B\x11\x01").replace(b"JFIF", b"none"),
    ],
    ids=["progressive", "grey", "CMYK", "4:4:0", "RGB"],
)
def test_other_files_are_left_to_the_cpu(data: bytes) -> None:
    assert planes(data) is None


def test_a_file_is_sound_exactly_where_the_strict_decoder_finds_nothing() -> None:
    draw, verdicts = random.Random(3), []
    for subsampling in (0, 1, 2):
        data = encoded(subsampling=subsampling, quality=85)
        assert is_sound(data)
        start = data.index(b"\xff\xda") + 14
        for number in range(60):
            broken, at = bytearray(data), draw.randrange(start, len(data) - 2)
            if number % 3 == 0:
                broken[at] ^= 1 << draw.randrange(8)
            elif number % 3 == 1:
                del broken[at:]
            else:
                broken[at : at + 30] = bytes(len(broken[at : at + 30]))
            verdicts.append((is_sound(bytes(broken)), _strict_decoder_accepts(bytes(broken))))
    assert {ours for ours, _ in verdicts} == {True, False}
    assert [ours for ours, _ in verdicts] == [theirs for _, theirs in verdicts]


def _strict_decoder_accepts(data: bytes) -> bool:
    try:
        simplejpeg.decode_jpeg(data)
    except ValueError:
        return False
    return True
