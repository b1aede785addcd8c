from __future__ import annotations

import zlib

import numpy as np
import pytest

from service.core.errors import InvalidImage
from service.core.pictures import Size
from service.imaging.files.codec import decode
from service.imaging.files.png import encode_png
from tests.serving import image_files as files

LIMIT = 50_000_000
ROWS = np.random.default_rng(0).integers(0, 256, (6, 5 * 6), np.uint8)


def sixteen_bits(body: bytes, interlace: int = 0) -> bytes:
    """Return a PNG of 5×6 pixels in 16-bit RGB with this deflated data."""
    return files.png_of_chunks(files.ihdr(5, 6, 16, 2, interlace), files.chunk(b"IDAT", body))


def eight_bits(body: bytes) -> bytes:
    return files.png_of_chunks(files.ihdr(10, 6, 8, 2), files.chunk(b"IDAT", body))


RAW = np.pad(ROWS, ((0, 0), (1, 0))).tobytes()
UNKNOWN_FILTER = RAW[:31] + b"\x09" + RAW[32:]


@pytest.mark.parametrize("build", [sixteen_bits, eight_bits])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"x\x9c" + bytes(range(200)), id="no deflate stream"),
        pytest.param(zlib.compress(RAW[:-1]), id="one byte missing"),
        pytest.param(zlib.compress(RAW)[:-20], id="cut stream"),
        pytest.param(zlib.compress(UNKNOWN_FILTER), id="unknown filter"),
    ],
)
def test_data_that_do_not_match_the_picture_are_refused_without_output(
    build: object, body: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidImage, match=r"PNG"):
        decode(build(body), max_pixels=LIMIT)  # type: ignore[operator]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(zlib.compress(RAW + b"x"), id="one byte too many"),
        pytest.param(zlib.compress(RAW)[:-4] + b"abcd", id="wrong checksum of the stream"),
    ],
)
def test_sixteen_bits_are_checked_to_the_last_byte(body: bytes) -> None:
    with pytest.raises(InvalidImage):
        decode(sixteen_bits(body), max_pixels=LIMIT)


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize(("colour_type", "bits"), [(0, 1), (0, 8), (2, 8), (3, 2), (3, 8), (4, 8), (6, 8)])
def test_missing_rows_are_detected_even_if_the_data_end_properly(rows: int, colour_type: int, bits: int) -> None:
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour_type]
    line = b"\0" + b"\xff" * ((9 * samples * bits + 7) // 8)
    head = files.ihdr(9, 6, bits, colour_type), files.chunk(b"PLTE", b"\x30" * 3 * min(256, 2**bits))
    whole = files.png_of_chunks(*head, files.chunk(b"IDAT", zlib.compress(line * 6)))
    assert decode(whole, max_pixels=LIMIT).size == Size(6, 9)
    with pytest.raises(InvalidImage, match=r"fewer pixels|truncated"):
        decode(files.png_of_chunks(*head, files.chunk(b"IDAT", zlib.compress(line * rows))), max_pixels=LIMIT)


def test_missing_rows_of_an_interlaced_picture_are_detected() -> None:
    good = files.interlaced_png(np.full((9, 9, 3), 200, np.uint8))
    rows = zlib.decompress(good[41 : good.index(b"IEND") - 8])
    body = files.chunk(b"IDAT", zlib.compress(rows[: -(1 + 27)]))
    with pytest.raises(InvalidImage, match="fewer pixels"):
        decode(files.png_of_chunks(files.ihdr(9, 9, 8, 2, 1), body), max_pixels=LIMIT)


def test_pictures_with_a_black_last_row_are_whole() -> None:
    for pixels in (np.zeros((40, 30, 3), np.uint8), np.zeros((40, 30, 2), np.uint8)):
        assert decode(files.png(pixels), max_pixels=LIMIT).size == Size(40, 30)
    assert decode(files.png_bomb(4_000), max_pixels=LIMIT).size == Size(4_000, 4_000)


def test_an_unknown_filter_is_found_in_any_pass_of_an_interlaced_picture() -> None:
    good = files.interlaced_png(np.zeros((9, 9, 3), np.uint16))
    assert decode(good, max_pixels=LIMIT).size == Size(9, 9)
    rows = zlib.decompress(good[41 : good.index(b"IEND") - 8])
    last = len(rows) - (1 + 9 * 6)
    bad = files.chunk(b"IDAT", zlib.compress(rows[:last] + b"\x07" + rows[last + 1 :]))
    with pytest.raises(InvalidImage, match="filter"):
        decode(files.png_of_chunks(files.ihdr(9, 9, 16, 2, 1), bad), max_pixels=LIMIT)


@pytest.mark.parametrize("kind", [b"IDAT", b"tEXt", b"PLTE"])
def test_a_wrong_checksum_of_any_chunk_is_named(kind: bytes) -> None:
    chunk = files.chunk(kind, zlib.compress(RAW) if kind == b"IDAT" else bytes(3))
    bad = chunk[:-1] + bytes((chunk[-1] ^ 1,))
    data = files.png_of_chunks(files.ihdr(10, 6), bad, files.chunk(b"IDAT", zlib.compress(RAW)))
    with pytest.raises(InvalidImage, match=f"checksum of its {kind.decode()} chunk"):
        decode(data, max_pixels=LIMIT)


def test_data_split_over_many_chunks_are_joined() -> None:
    body = zlib.compress(RAW)
    pieces = [files.chunk(b"IDAT", body[at : at + 7]) for at in range(0, len(body), 7)]
    picture = decode(files.png_of_chunks(files.ihdr(10, 6), *pieces), max_pixels=LIMIT)
    np.testing.assert_array_equal(picture.pixels, ROWS.reshape(6, 10, 3))


def test_a_transparent_colour_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(InvalidImage, match="tRNS chunk has 2 bytes instead of 6"):
        decode(files.png(ROWS.reshape(6, 10, 3), files.chunk(b"tRNS", bytes(2))), max_pixels=LIMIT)


@pytest.mark.parametrize(("colour_type", "bits"), [(0, 8), (3, 8)])
def test_a_palette_too_long_or_out_of_place_does_no_harm(colour_type: int, bits: int) -> None:
    rows = files.png_rows(np.full((2, 3), 7, np.uint8))
    head = files.ihdr(3, 2, bits, colour_type)
    data = files.png_of_chunks(head, files.chunk(b"PLTE", bytes(6)), files.chunk(b"IDAT", rows))
    picture = decode(data, max_pixels=LIMIT)  # an index beyond the palette is black, as in viewers
    assert picture.pixels.shape == (2, 3, 1 if colour_type == 0 else 3)
    assert picture.pixels.max() == (7 if colour_type == 0 else 0)


def test_bombs_in_text_and_profile_chunks_cost_nothing() -> None:
    text = files.inflating_chunk(b"zTXt", b"Comment\0\0")
    picture = decode(files.png(ROWS.reshape(6, 10, 3), text), max_pixels=LIMIT)
    np.testing.assert_array_equal(picture.pixels, ROWS.reshape(6, 10, 3))
    profile = files.inflating_chunk(b"iCCP", b"bomb\0\0")
    with pytest.raises(InvalidImage, match="colour profile is larger than 4 MiB"):
        decode(files.png(ROWS.reshape(6, 10, 3), profile), max_pixels=LIMIT)


@pytest.mark.parametrize("height", [1, 255, 256, 510, 511])
def test_pictures_of_any_number_of_stored_blocks_are_decoded_exactly(height: int) -> None:
    """255 rows of 256 pixels, with their filter bytes, fill one stored block."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, 256, 1), np.uint8)
    data = encode_png(pixels, None)
    np.testing.assert_array_equal(decode(data, max_pixels=LIMIT).pixels, pixels)


@pytest.mark.parametrize("kind", ["flat", "noise"])
@pytest.mark.parametrize("missing", [0, 1, 5, 30_000])
@pytest.mark.parametrize("surplus", [b"", b"behind", bytes(50_000)])
def test_a_picture_that_is_inflated_in_pieces_is_whole_or_refused(kind: str, missing: int, surplus: bytes) -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 65_536, (450, 1100, 3), np.uint16) if kind == "noise" else np.full((4500, 1100, 3), 7)
    rows = pixels.astype(">u2").view(np.uint8).reshape(len(pixels), -1)
    packed = zlib.compress(np.pad(rows, ((0, 0), (1, 0))).tobytes(), 1)
    body = files.chunk(b"IDAT", packed[: max(2, len(packed) - missing)] + (b"" if missing else surplus))
    data = files.png_of_chunks(files.ihdr(1100, len(pixels), 16, 2), body)
    if missing:
        with pytest.raises(InvalidImage):
            decode(data, max_pixels=LIMIT)
    else:
        assert np.array_equal(decode(data, max_pixels=LIMIT).pixels, pixels)


@pytest.mark.parametrize("rows", [999, 1001])
def test_a_large_picture_of_another_number_of_rows_than_its_header_says_is_refused(rows: int) -> None:
    packed = zlib.compress(bytes(rows * (1 + 6 * 1100)))
    data = files.png_of_chunks(files.ihdr(1100, 1000, 16, 2), files.chunk(b"IDAT", packed))
    with pytest.raises(InvalidImage, match="more or fewer pixels"):
        decode(data, max_pixels=LIMIT)
