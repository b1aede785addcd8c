"""The estimated cost of decoding, against the real one."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from service.admission.large_and_small_shares import SMALL_DIVISOR
from service.core.pictures import Size
from service.imaging.files.decode_cost import decode_effort, decoded_bytes, is_large
from service.imaging.files.header import Header, read_header
from tests.serving import image_files as files

pytestmark = pytest.mark.slow

SIDE = 1500
SLACK = 4 << 20
"""Bytes for the interpreter and the decoders' code."""
FLAT = np.broadcast_to((np.arange(SIDE) // 8 % 256).astype(np.uint8)[:, None, None], (SIDE, SIDE, 4))
PIXELS = Size(10, 10)

GROWTH = """
import sys
from pathlib import Path
from service.imaging.files.codec import decode

def resident(kind):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))

small, large = (Path(path).read_bytes() for path in sys.argv[1:])
decode(small, max_pixels=10**8)
Path("/proc/self/clear_refs").write_text("5")  # forgets the peak of starting
before = resident("VmRSS")
decode(large, max_pixels=10**8)
print(resident("VmHWM") - before)
"""


def of_jpeg(pixels: np.ndarray, **options: object) -> bytes:
    return files.saved(np.ascontiguousarray(pixels[:, :, :3]), "JPEG", **options)


FILES = {
    "grey PNG": lambda pixels: files.png(pixels[:, :, :1]),
    "grey and alpha PNG": lambda pixels: files.png(pixels[:, :, :2]),
    "RGB PNG": lambda pixels: files.png(pixels[:, :, :3]),
    "RGBA PNG": files.png,
    "RGBA PNG of 16 bits": lambda pixels: files.png(pixels.astype(np.uint16) * 257),
    "RGB PNG with a transparent colour": lambda pixels: files.png(pixels[:, :, :3], files.chunk(b"tRNS", bytes(6))),
    "JPEG": of_jpeg,
    "progressive JPEG": lambda pixels: of_jpeg(pixels, progressive=True, subsampling=0),
    "CMYK JPEG": files.cmyk_jpeg,
    "WebP": lambda pixels: files.saved(pixels, "WEBP", lossless=True),
}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="reads Linux's /proc and knows glibc's allocator")
@pytest.mark.parametrize("kind", FILES)
def test_decoding_takes_no_more_memory_than_estimated(kind: str, tmp_path: Path) -> None:
    paths = [tmp_path / "small", tmp_path / "large"]
    for path, pixels in zip(paths, (FLAT[:64, :64], FLAT), strict=True):
        path.write_bytes(FILES[kind](np.ascontiguousarray(pixels)))
    data = paths[1].read_bytes()
    done = subprocess.run([sys.executable, "-c", GROWTH, *paths], capture_output=True, text=True, check=True)
    counted = decoded_bytes(read_header(data, max_pixels=SIDE * SIDE), len(data))
    assert int(done.stdout) <= counted + SLACK


@pytest.mark.parametrize(
    ("header", "a_pixel"),
    [
        (Header("jpeg", PIXELS), 5),
        (Header("jpeg", PIXELS, orientation=6), 7),
        (Header("jpeg", PIXELS, progressive=True), 10),
        (Header("jpeg", PIXELS, inks=True), 16),
        (Header("webp", PIXELS), 8),
        (Header("webp", PIXELS, alpha=True), 9),
        (Header("png", PIXELS, bits=1, colour="grey"), 5),
        (Header("png", PIXELS, transparent=True), 14),
        (Header("png", PIXELS, bits=4, colour="palette"), 14),
        (Header("png", PIXELS), 10),
        (Header("png", PIXELS, alpha=True), 13),
        (Header("png", PIXELS, bits=16, alpha=True), 26),
    ],
)
def test_depth_and_channels_and_how_they_are_packed_count(header: Header, a_pixel: int) -> None:
    assert decoded_bytes(header, 100) == a_pixel * 100


def test_a_small_picture_in_a_large_png_is_counted_by_the_file() -> None:
    assert decoded_bytes(Header("png", PIXELS), 1_000_000) == 3_000_000


def test_a_jpeg_header_tells_its_scan_order_and_inks() -> None:
    pixels = np.ascontiguousarray(FLAT[:16, :16])
    made = [of_jpeg(pixels), of_jpeg(pixels, progressive=True), files.cmyk_jpeg(pixels)]
    headers = [read_header(data, max_pixels=1000) for data in made]
    assert [(header.progressive, header.inks) for header in headers] == [(False, False), (True, False), (False, True)]


@pytest.mark.parametrize("kind", ["JPEG", "progressive JPEG", "CMYK JPEG", "WebP", "grey PNG", "RGB PNG", "RGBA PNG"])
def test_slower_files_have_a_higher_effort_per_pixel(kind: str) -> None:
    data = FILES[kind](np.ascontiguousarray(FLAT[:512, :512]))
    counted = decode_effort(read_header(data, max_pixels=10**8), len(data)) / 512**2
    assert counted == 1 if kind in {"JPEG", "grey PNG"} else counted >= 6


def test_bytes_without_pixels_count() -> None:
    mask = read_header(files.png(np.zeros((512, 512, 1), np.uint8)), max_pixels=10**8)
    assert decode_effort(mask, 60_000) == 512**2, "a drawn mask, or a busy one"
    assert decode_effort(mask, 10**6) > 20 * 10**6, "empty blocks take 126 ms a MiB"
    photo = Header("jpeg", Size(512, 512))
    assert decode_effort(photo, 200_000) == 512**2
    assert decode_effort(photo, 10**7) == 10**7


@pytest.mark.parametrize(
    ("header", "file_bytes", "large"),
    [
        (Header("jpeg", Size(2000, 1999)), 1000, False),
        (Header("jpeg", Size(2000, 2000)), 1000, True),
        (Header("png", Size(1999, 2000), bits=16, alpha=True), 10**5, False),
        (Header("png", PIXELS), 10**5, False),
        (Header("png", PIXELS), 10**6, True),  # data beyond the picture's own still have to be inflated
    ],
)
def test_a_picture_is_large_from_4_megapixels_on_or_when_it_takes_as_long(
    header: Header, file_bytes: int, large: bool
) -> None:
    assert is_large(header, file_bytes) is large


def test_any_small_picture_with_its_mask_fits_the_reserved_memory() -> None:
    worst = decoded_bytes(Header("png", Size(1999, 2000), bits=16, alpha=True), 10**6)
    assert 2 * worst <= 2048 * 2**20 // SMALL_DIVISOR
