from __future__ import annotations

import struct
import time
import tracemalloc
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import InvalidImage, ServiceError, TooLarge, UnsupportedType
from service.core.pictures import Size
from service.imaging.files.header import Header, read_header
from tests.serving import image_files as files

LIMIT = 50_000_000
RGB = np.random.default_rng(0).integers(0, 256, (17, 23, 3), np.uint8)
DATA = files.chunk(b"IDAT", b"")
JPEG, PNG, WEBP = (files.saved(RGB, kind) for kind in ("JPEG", "PNG", "WEBP"))


@pytest.mark.parametrize(("data", "kind"), [(JPEG, "jpeg"), (PNG, "png"), (WEBP, "webp")], ids=("jpeg", "png", "webp"))
def test_the_format_and_size_come_from_the_file(data: bytes, kind: str) -> None:
    header = read_header(data, max_pixels=LIMIT)
    assert (header.format, header.size, header.bits, header.colour) == (kind, Size(17, 23), 8, "rgb")


@pytest.mark.parametrize(
    ("bits", "colour_type", "colour", "alpha"),
    [(1, 0, "grey", False), (16, 0, "grey", False), (16, 2, "rgb", False), (8, 4, "grey", True), (16, 6, "rgb", True)],
)
def test_a_png_header_tells_depth_colour_and_alpha(bits: int, colour_type: int, colour: str, alpha: bool) -> None:
    data = files.png_of_chunks(files.ihdr(3, 2, bits, colour_type), files.chunk(b"IDAT", b""))
    assert read_header(data, max_pixels=LIMIT) == Header("png", Size(2, 3), 1, bits, colour, alpha)  # type: ignore[arg-type]


def test_a_palette_png_and_a_grey_jpeg_are_recognised() -> None:
    palette = files.small_bits_png(np.zeros((2, 3), int), 1, 3, files.chunk(b"PLTE", bytes(6)))
    assert read_header(palette, max_pixels=LIMIT).colour == "palette"
    assert read_header(files.saved(RGB[:, :, :1], "JPEG"), max_pixels=LIMIT).colour == "grey"


def test_webp_of_each_kind_tells_size_and_alpha() -> None:
    rgba = np.dstack((RGB, RGB[:, :, 0]))
    for options in ({"lossless": True}, {"quality": 80}, {"quality": 80, "exif": files.exif(3)}):
        opaque = read_header(files.saved(RGB, "WEBP", **options), max_pixels=LIMIT)
        clear = read_header(files.saved(rgba, "WEBP", **options), max_pixels=LIMIT)
        assert (opaque.size, opaque.alpha, clear.size, clear.alpha) == (Size(17, 23), False, Size(17, 23), True)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_size_is_that_of_the_upright_picture(kind: str, orientation: int) -> None:
    header = read_header(files.saved(RGB, kind, exif=b"Exif\0\0" + files.exif(orientation)), max_pixels=LIMIT)
    assert header.orientation == orientation
    assert header.size == (Size(17, 23) if orientation < 5 else Size(23, 17))
    assert header.stored == Size(17, 23)


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(files.exif(6, ">"), id="big endian"),
        pytest.param(files.exif(0), id="orientation 0"),
        pytest.param(files.exif(9), id="orientation 9"),
        pytest.param(b"", id="empty"),
        pytest.param(b"XX" + files.exif(6)[2:], id="unknown byte order"),
        pytest.param(files.exif(6)[:12], id="truncated"),
        pytest.param(b"II*\0" + struct.pack("<IH", 2**32 - 1, 9), id="offset beyond the end"),
        pytest.param(b"II*\0" + struct.pack("<IH", 8, 65535) + bytes(100), id="more entries than bytes"),
        pytest.param(b"II*\0" + struct.pack("<IH", 8, 0), id="no entries"),
        pytest.param(files.exif(6).replace(b"\x12\x01\x03\x00", b"\x12\x01\x04\x00"), id="of another type"),
    ],
)
def test_broken_exif_means_upright_and_never_an_error(block: bytes) -> None:
    data = files.with_jpeg_segment(JPEG, 0xE1, b"Exif\0\0" + block)
    assert read_header(data, max_pixels=LIMIT).orientation == (6 if block == files.exif(6, ">") else 1)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "WEBP canvas"])
def test_too_many_pixels_are_refused_from_the_header_alone(kind: str) -> None:
    data = {
        "PNG": files.PNG_SIGNATURE + files.ihdr(13_000, 13_000),
        "JPEG": files.jpeg_with_size(JPEG, 13_000, 13_000),
        "WEBP": files.riff(files.vp8l_header(13_000, 13_000)),
        "WEBP canvas": files.riff(files.vp8x(13_000, 13_000)),
    }[kind]
    with pytest.raises(TooLarge, match=r"13000×13000, 169,000,000 pixels; the limit is 50,000,000") as raised:
        read_header(data, max_pixels=LIMIT)
    assert (raised.value.code, raised.value.status) == ("too_many_pixels", 413)


def test_the_limit_itself_is_allowed_and_one_pixel_more_is_not() -> None:
    assert read_header(PNG, max_pixels=17 * 23).size == Size(17, 23)
    with pytest.raises(TooLarge):
        read_header(PNG, max_pixels=17 * 23 - 1)


def test_a_side_longer_than_any_photograph_is_refused() -> None:
    with pytest.raises(TooLarge, match="65,535"):
        read_header(files.PNG_SIGNATURE + files.ihdr(65_536, 1), max_pixels=LIMIT)


def test_a_bomb_of_169_megapixels_costs_neither_time_nor_memory() -> None:
    bomb = files.png_bomb()
    assert len(bomb) < 500_000
    tracemalloc.start()
    started = time.thread_time()
    with pytest.raises(TooLarge):
        read_header(bomb, max_pixels=LIMIT)
    elapsed_s = time.thread_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert elapsed_s < 0.01
    assert peak < 100_000


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(files.PNG_SIGNATURE + files.ihdr(1, 1) + files.chunk(b"tEXt", b"") * 70_000, id="PNG chunks"),
        pytest.param(b"\xff\xd8" + files.jpeg_segment(0xFE, b"") * 70_000, id="JPEG segments"),
        pytest.param(files.riff(*[(b"JUNK", b"")] * 70_000), id="WebP chunks"),
    ],
)
def test_files_with_too_many_empty_chunks_are_refused(data: bytes) -> None:
    started = time.thread_time()
    with pytest.raises(InvalidImage, match="more than 65536"):
        read_header(data, max_pixels=LIMIT)
    assert time.thread_time() - started < 1


def test_a_megabyte_of_fill_bytes_is_skipped_at_once() -> None:
    data = JPEG[:2] + b"\xff" * 10_000_000 + JPEG[2:]
    started = time.thread_time()
    assert read_header(data, max_pixels=LIMIT).size == Size(17, 23)
    assert time.thread_time() - started < 0.5


BAD = {
    "nothing": (b"", InvalidImage),
    "one byte": (b"\xff", UnsupportedType),
    "text": (b"hello, I am a picture", UnsupportedType),
    "html": (b"<!DOCTYPE html><html></html>", UnsupportedType),
    "gif": (files.saved(RGB, "GIF"), UnsupportedType),
    "bmp": (files.saved(RGB, "BMP"), UnsupportedType),
    "tiff": (files.saved(RGB, "TIFF"), UnsupportedType),
    "avif": (b"\0\0\0\x1cftypavif" + bytes(20), UnsupportedType),
    "heic": (b"\0\0\0\x1cftypheic" + bytes(20), UnsupportedType),
    "jpeg xl": (b"\xff\x0a" + bytes(20), UnsupportedType),
    "jpeg 2000": (b"\0\0\0\x0cjP  \r\n\x87\n", UnsupportedType),
    "pdf": (b"%PDF-1.7", UnsupportedType),
    "zip": (b"PK\x03\x04", UnsupportedType),
    "riff of sound": (b"RIFF\x24\0\0\0WAVEfmt ", UnsupportedType),
    "jpeg: SOI only": (b"\xff\xd8\xff", InvalidImage),
    "jpeg: EOI at once": (b"\xff\xd8\xff\xd9", InvalidImage),
    "jpeg: no marker": (b"\xff\xd8\xff\xe0\x00\x04ab" + b"garbage", InvalidImage),
    "jpeg: segment shorter than its length": (b"\xff\xd8\xff\xe0\x00\x01", InvalidImage),
    "jpeg: segment behind the end": (b"\xff\xd8\xff\xe0\xff\xff", InvalidImage),
    "jpeg: no frame": (b"\xff\xd8" + files.jpeg_segment(0xDA, bytes(10)), InvalidImage),
    "jpeg: short frame": (b"\xff\xd8" + files.jpeg_segment(0xC0, b"\x08\0\x01"), InvalidImage),
    "jpeg: two frames": (
        b"\xff\xd8" + 2 * files.jpeg_segment(0xC0, struct.pack(">BHHB", 8, 1, 1, 1) + bytes(3)),
        InvalidImage,
    ),
    "jpeg: height 0": (files.jpeg_with_size(JPEG, 23, 0), InvalidImage),
    "jpeg: width 0": (files.jpeg_with_size(JPEG, 0, 17), InvalidImage),
    "jpeg: 12 bits": (JPEG.replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc1\x00\x11\x0c"), UnsupportedType),
    "jpeg: lossless": (JPEG.replace(b"\xff\xc0\x00\x11", b"\xff\xc3\x00\x11"), UnsupportedType),
    "jpeg: two components": (
        b"\xff\xd8" + files.jpeg_segment(0xC0, struct.pack(">BHHB", 8, 1, 1, 2) + bytes(6)),
        InvalidImage,
    ),
    "jpeg: fill to the end": (b"\xff\xd8" + b"\xff" * 50, InvalidImage),
    "png: signature only": (files.PNG_SIGNATURE, InvalidImage),
    "png: no IHDR": (files.png_of_chunks(files.chunk(b"IDAT", b"")), InvalidImage),
    "png: short IHDR": (files.png_of_chunks(files.chunk(b"IHDR", bytes(5))), InvalidImage),
    "png: two IHDR": (files.png_of_chunks(files.ihdr(1, 1), files.ihdr(1, 1)), InvalidImage),
    "png: width 0": (files.png_of_chunks(files.ihdr(0, 1)), InvalidImage),
    "png: height 0": (files.png_of_chunks(files.ihdr(1, 0)), InvalidImage),
    "png: 3 bits": (files.png_of_chunks(files.ihdr(1, 1, bits=3)), InvalidImage),
    "png: colour type 5": (files.png_of_chunks(files.ihdr(1, 1, colour_type=5)), InvalidImage),
    "png: interlace 2": (files.png_of_chunks(files.ihdr(1, 1, interlace=2)), InvalidImage),
    "png: no pixels": (files.png_of_chunks(files.ihdr(1, 1)), InvalidImage),
    "png: no palette": (files.png_of_chunks(files.ihdr(1, 1, 8, 3), files.chunk(b"IDAT", b"")), InvalidImage),
    "png: pixels interrupted by text": (
        files.png_of_chunks(files.ihdr(1, 1), DATA, files.chunk(b"tEXt", b"a\0b"), DATA),
        InvalidImage,
    ),
    "png: unknown critical chunk": (
        files.png_of_chunks(files.ihdr(1, 1), files.chunk(b"ABCD", b""), DATA),
        InvalidImage,
    ),
    "png: unknown critical chunk behind the pixels": (
        files.png_of_chunks(files.ihdr(1, 1), DATA, files.chunk(b"ABCD", b"")),
        InvalidImage,
    ),
    "png: chunk type of digits": (files.png_of_chunks(files.ihdr(1, 1), DATA, files.chunk(b"ab12", b"")), InvalidImage),
    "png: palette behind the pixels": (
        files.png_of_chunks(files.ihdr(1, 1, 8, 3), DATA, files.chunk(b"PLTE", bytes(3))),
        InvalidImage,
    ),
    "png: two palettes": (
        files.png_of_chunks(files.ihdr(1, 1, 8, 3), *[files.chunk(b"PLTE", bytes(3))] * 2, DATA),
        InvalidImage,
    ),
    "png: transparency behind the pixels": (
        files.png_of_chunks(files.ihdr(1, 1), DATA, files.chunk(b"tRNS", bytes(6))),
        InvalidImage,
    ),
    "png: chunk behind the end": (files.PNG_SIGNATURE + files.ihdr(1, 1) + b"\xff\xff\xff\xffIDAT", InvalidImage),
    "png: animated": (
        files.png_of_chunks(files.ihdr(1, 1), files.chunk(b"acTL", struct.pack(">II", 2, 0))),
        UnsupportedType,
    ),
    "webp: RIFF header only": (b"RIFF\x04\0\0\0WEBP", InvalidImage),
    "webp: shorter than its header says": (WEBP[:-1], InvalidImage),
    "webp: chunk behind the end": (b"RIFF\x0c\0\0\0WEBPVP8 \xff\0\0\0", InvalidImage),
    "webp: short image chunk": (files.riff((b"VP8 ", b"abc")), InvalidImage),
    "webp: no start code": (files.riff((b"VP8 ", bytes(30))), InvalidImage),
    "webp: not a key frame": (files.riff((b"VP8 ", b"\x01\0\0\x9d\x01\x2a\x01\0\x01\0")), InvalidImage),
    "webp: width 0": (files.riff((b"VP8 ", b"\0\0\0\x9d\x01\x2a\0\0\x01\0")), InvalidImage),
    "webp: bad lossless signature": (files.riff((b"VP8L", bytes(30))), InvalidImage),
    "webp: canvas of another size": (files.riff(files.vp8x(9, 9), files.vp8l_header(8, 9)), InvalidImage),
    "webp: animated": (files.riff(files.vp8x(9, 9, flags=2)), UnsupportedType),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_header_is_refused_with_its_own_error(name: str) -> None:
    data, error = BAD[name]
    with pytest.raises(error) as raised:
        read_header(data, max_pixels=LIMIT)
    assert raised.value.status == {InvalidImage: 400, UnsupportedType: 415}[error]
    assert raised.value.code == ("animated_image" if "animated" in name else raised.type.default_code)
    assert len(str(raised.value)) > 15


def test_an_unknown_type_is_named_where_it_is_known() -> None:
    with pytest.raises(UnsupportedType, match="is a GIF; send a JPEG, PNG or WebP"):
        read_header(files.saved(RGB, "GIF"), max_pixels=LIMIT)


def test_a_png_animation_of_one_frame_is_a_still_picture() -> None:
    still = files.png(RGB, files.chunk(b"acTL", struct.pack(">II", 1, 0)))
    assert read_header(still, max_pixels=LIMIT).size == Size(17, 23)


@given(st.binary(max_size=200), st.sampled_from([b"", files.PNG_SIGNATURE, b"\xff\xd8\xff", b"RIFF\x40\0\0\0WEBP"]))
def test_random_bytes_raise_nothing_but_service_errors(tail: bytes, head: bytes) -> None:
    with suppress(ServiceError):
        read_header(head + tail, max_pixels=LIMIT)


@given(st.sampled_from([JPEG, PNG, WEBP]), st.data())
def test_mutated_files_raise_nothing_but_service_errors(data: bytes, draw: st.DataObject) -> None:
    changed = bytearray(data)
    for at in draw.draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=5)):
        changed[at] = draw.draw(st.integers(0, 255))
    with suppress(ServiceError):
        read_header(bytes(changed), max_pixels=LIMIT)


def test_a_huge_text_chunk_is_never_inflated() -> None:
    text = files.chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(1 << 20)))
    assert read_header(files.png(RGB, *[text] * 100), max_pixels=LIMIT).size == Size(17, 23)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_header_tells_whether_there_is_a_colour_profile(kind: str) -> None:
    pixels = np.zeros((4, 5, 3), np.uint8)
    with_one, without = (files.saved(pixels, kind, **extra) for extra in ({"icc_profile": files.icc_profile()}, {}))
    assert read_header(with_one, max_pixels=100).profile
    assert not read_header(without, max_pixels=100).profile
