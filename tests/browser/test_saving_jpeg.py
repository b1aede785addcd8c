"""A JPEG saved as JPEG: blocks outside the fills are kept, and those that a fill touches are encoded once."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps, JpegImagePlugin

from tests.browser.tab import PICTURES, Tab, encoded, noise

SAMPLINGS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}
LINE = ((100, 150), (140, 160))
"""A stroke across several blocks."""


def photograph(width: int = 241, height: int = 323) -> Image.Image:
    """Return a photograph whose sides are not multiples of a block's."""
    return Image.open(PICTURES / "dress.jpg").convert("RGB").resize((width, height))


def touched(mask: NDArray[np.bool_], side: int = 16) -> NDArray[np.bool_]:
    """Return the pixels of all blocks under a mask, and two pixels around, which chroma upsampling may reach."""
    found = np.zeros_like(mask)
    for y in range(0, mask.shape[0], side):
        for x in range(0, mask.shape[1], side):
            if mask[y : y + side, x : x + side].any():
                found[max(0, y - 2) : y + side + 2, max(0, x - 2) : x + side + 2] = True
    return found


def psnr(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """Return the peak signal-to-noise ratio in dB."""
    return float(10 * np.log10(255**2 / max(1e-9, np.mean((one.astype(float) - other) ** 2))))


def opened(file: dict[str, object]) -> Image.Image:
    return Image.open(io.BytesIO(file["buffer"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("sampling", [*SAMPLINGS, "grey"])
def test_it_keeps_its_blocks_its_tables_and_its_subsampling(tab: Tab, sampling: str, progressive: bool) -> None:
    source = photograph().convert("L") if sampling == "grey" else photograph()
    options = {} if sampling == "grey" else {"subsampling": SAMPLINGS[sampling]}
    file = encoded(source, "photo.jpg", "JPEG", quality=80, progressive=progressive, **options)
    mask = tab.paint_and_fill(file, LINE)
    before, after = opened(file), tab.saved("jpeg")
    assert (after.format, after.mode, after.size) == ("JPEG", before.mode, before.size)
    assert after.quantization == before.quantization
    assert JpegImagePlugin.get_sampling(after) == JpegImagePlugin.get_sampling(before)
    old, new = np.asarray(before), np.asarray(after)
    assert (old == new)[~touched(mask)].all()
    assert (old != new)[mask].any()
    assert psnr(old[~mask], new[~mask]) > 45
    # another JPEG encoder, given the lossless result and the same tables, is at most 1 dB closer
    exact = tab.saved().convert(before.mode)
    other = encoded(exact, "other.jpg", "JPEG", qtables=before.quantization, **options)
    once = psnr(np.asarray(exact)[mask], np.asarray(opened(other))[mask])
    assert psnr(np.asarray(exact)[mask], new[mask]) > once - 1


def test_a_fill_is_encoded_once_however_many_follow(tab: Tab) -> None:
    file = encoded(photograph(), "photo.jpg", "JPEG", quality=50)
    tab.open(file).collect()
    tab.brush(20)
    masks, saved = [], []
    for i in range(4):
        tab.drag(((40 + i * 48, 60 + i * 64), (60 + i * 48, 60 + i * 64)))
        masks.append(tab.mask())
        tab.fill()
        saved.append(np.asarray(tab.saved("jpeg")))
    for i, mask in enumerate(masks):
        rest = ~np.logical_or.reduce([touched(other) for other in masks[i + 1 :]] or [np.zeros_like(mask)])
        assert (saved[i] == saved[-1])[rest].all()
    assert (np.asarray(opened(file)) == saved[-1])[~np.logical_or.reduce([touched(mask) for mask in masks])].all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_photograph_stays_as_it_is_stored(tab: Tab, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x112] = orientation
    exif[0x10F] = "Maker"
    file = encoded(photograph(), "turned.jpg", "JPEG", exif=exif, quality=90)
    mask = tab.paint_and_fill(file, LINE)
    after = tab.saved("jpeg")
    assert (after.size, after.getexif()[0x112], after.getexif()[0x10F]) == ((241, 323), orientation, "Maker")
    shown, exact = np.asarray(ImageOps.exif_transpose(after)), np.asarray(tab.saved())
    before = np.asarray(ImageOps.exif_transpose(opened(file)))
    assert psnr(shown[~mask], before[~mask]) > 40
    assert psnr(shown[mask], exact[mask]) > 30
    assert psnr(shown[mask], exact[mask]) > psnr(before[mask], exact[mask])


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(((1, 1, 3),), id="a byte"),
        pytest.param(((4, 1, 3),), id="a long"),
        pytest.param(((3, 2, 3),), id="two numbers"),
        pytest.param(((3, 1, 1), (3, 1, 3)), id="upright first"),
    ],
)
def test_an_odd_orientation_is_read_as_the_browser_reads_it(tab: Tab, entries: tuple[tuple[int, int, int]]) -> None:
    packed = b"".join(struct.pack("<HHIHH", 0x112, *entry, entry[2] * (entry[1] - 1)) for entry in entries)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(entries)) + packed + bytes(4)
    file = encoded(photograph(), "odd.jpg", "JPEG", exif=exif, quality=90)
    mask = tab.paint_and_fill(file, LINE)
    shown, after = (np.asarray(tab.saved(kind)) for kind in ("png", "jpeg"))
    assert psnr(shown[~mask], after[~mask]) > 40
    assert psnr(shown[mask], after[mask]) > 30


def test_no_small_picture_of_what_was_there_stays(tab: Tab) -> None:
    small = io.BytesIO()
    photograph(64, 86).save(small, "JPEG")
    picture = photograph()
    picture.save(buffer := io.BytesIO(), "JPEG", exif=with_thumbnail(small.getvalue()))
    assert small.getvalue() in buffer.getvalue()
    tab.paint_and_fill({"name": "photo.jpg", "mimeType": "image/jpeg", "buffer": buffer.getvalue()}, LINE)
    path = tab.download("save-menu", '[data-save="jpeg"]').path()
    assert path.read_bytes().count(b"\xff\xd8\xff") == 1
    assert Image.open(path).getexif()[0x10F] == "Maker"
    assert not Image.open(path).getexif().get_ifd(1)


def with_thumbnail(thumbnail: bytes) -> bytes:
    """Return EXIF with a maker's name, and a thumbnail in its second directory."""
    first = b"II*\0\x08\0\0\0" + b"\x01\0" + b"\x0f\x01\x02\0\x06\0\0\0\x1a\0\0\0" + b"\x20\0\0\0" + b"Maker\0"
    entries = ((0x103, 3, 6), (0x201, 4, 74), (0x202, 4, len(thumbnail)))
    second = b"\x03\0" + b"".join(
        tag.to_bytes(2, "little") + kind.to_bytes(2, "little") + b"\x01\0\0\0" + value.to_bytes(4, "little")
        for tag, kind, value in entries
    )
    return b"Exif\0\0" + first + second + b"\0\0\0\0" + thumbnail


def test_one_of_four_inks_is_encoded_anew_and_that_is_said(tab: Tab) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    tab.paint_and_fill(encoded(photograph().convert("CMYK"), "inks.jpg", "JPEG", icc_profile=profile), LINE)
    after = tab.saved("jpeg")
    tab.says("JPEG changes every pixel a little")
    assert (after.mode, after.size) == ("RGB", (241, 323))
    assert "icc_profile" not in tab.saved().info, "a profile for inks describes no RGB"
    assert "icc_profile" not in after.info


def test_a_jpeg_of_red_green_and_blue_stays_one(tab: Tab) -> None:
    file = encoded(noise(241, 323), "rgb.jpg", "JPEG", keep_rgb=True, quality=90)
    mask = tab.paint_and_fill(file, LINE)
    old, new = np.asarray(opened(file)), np.asarray(tab.saved("jpeg"))
    assert (old == new)[~touched(mask)].all()
    assert psnr(np.asarray(tab.saved())[mask], new[mask]) > 30
