from __future__ import annotations

import numpy as np
import pytest

from service.core.errors import InvalidImage
from service.imaging.files.containers import jpeg_segments, webp_chunks
from service.imaging.files.png_chunks import ordered_png_chunks, png_chunks
from tests.serving import image_files as files

RGB = np.zeros((4, 5, 3), np.uint8)


def test_png_chunks_come_in_order_and_end_with_iend() -> None:
    data = files.png(RGB, files.chunk(b"tEXt", b"key\0value"))
    chunks = list(png_chunks(data + b"what follows is ignored"))
    assert [chunk.kind for chunk in chunks] == [b"IHDR", b"tEXt", b"IDAT", b"IEND"]
    assert data[chunks[1].start : chunks[1].end] == b"key\0value"


def test_chunks_are_read_lazily_so_that_a_size_can_be_refused_before_the_rest() -> None:
    chunks = png_chunks(files.PNG_SIGNATURE + files.ihdr(5, 4) + b"\0\0\0\x09ID")
    assert next(chunks).kind == b"IHDR"
    with pytest.raises(InvalidImage, match="truncated"):
        next(chunks)


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ((b"IDAT", b"tEXt", b"IDAT"), "interrupted by a tEXt chunk"),
        ((b"IDAT", b"prVt", b"IDAT"), "interrupted by a prVt chunk"),
        ((b"CgBI", b"IDAT"), "unknown critical chunk CgBI"),
        ((b"ab\xff1", b"IDAT"), "is not a chunk type"),
        ((b"PLTE", b"PLTE", b"IDAT"), "PLTE chunk occurs twice or after"),
        ((b"IDAT", b"tRNS"), "tRNS chunk occurs twice or after"),
    ],
)
def test_chunks_that_a_png_decoder_must_not_ignore_are_refused_by_name(chunks: tuple[bytes, ...], said: str) -> None:
    data = files.png_of_chunks(files.ihdr(5, 4), *(files.chunk(kind, b"") for kind in chunks))
    with pytest.raises(InvalidImage, match=said):
        list(ordered_png_chunks(data))


@pytest.mark.parametrize(
    "chunks",
    [
        (b"tEXt", b"PLTE", b"tRNS", b"prVt", b"IDAT", b"IDAT", b"IDAT", b"tIME", b"tEXt"),
        (b"tEXt", b"tEXt", b"IDAT", b"eXIf", b"prVt"),
    ],
)
def test_pngs_with_ignorable_chunks_are_accepted(chunks: tuple[bytes, ...]) -> None:
    data = files.png_of_chunks(files.ihdr(5, 4), *(files.chunk(kind, b"") for kind in chunks))
    assert tuple(chunk.kind for chunk in ordered_png_chunks(data)) == (b"IHDR", *chunks, b"IEND")


def test_a_chunk_that_is_cut_is_named() -> None:
    with pytest.raises(InvalidImage, match="truncated inside its IDAT chunk"):
        list(png_chunks(files.PNG_SIGNATURE + files.ihdr(5, 4) + b"\0\0\0\x09IDATabcd"))


def test_jpeg_segments_end_with_the_first_scan() -> None:
    data = files.saved(RGB, "JPEG")
    kinds = [segment.kind[0] for segment in jpeg_segments(data)]
    assert kinds[0] == 0xE0
    assert kinds[-1] == 0xDA
    assert 0xC0 in kinds


def test_fill_bytes_and_markers_without_a_body_are_skipped() -> None:
    data = files.saved(RGB, "JPEG")
    plain = [segment.kind for segment in jpeg_segments(data)]
    padded = data[:2] + b"\xff\xff\xff\x01" + b"\xff\xd0" + b"\xff\xff" + data[2:]
    assert [segment.kind for segment in jpeg_segments(padded)] == plain


def test_a_jpeg_that_ends_inside_a_length_is_truncated() -> None:
    with pytest.raises(InvalidImage, match="truncated"):
        list(jpeg_segments(b"\xff\xd8\xff\xe0\x00"))


def test_webp_chunks_of_odd_length_are_padded() -> None:
    data = files.riff((b"ABCD", b"odd"), (b"EFGH", b"even"))
    assert [(c.kind, data[c.start : c.end]) for c in webp_chunks(data)] == [(b"ABCD", b"odd"), (b"EFGH", b"even")]


def test_bytes_behind_the_riff_are_ignored() -> None:
    data = files.riff((b"ABCD", b"even")) + files.riff((b"EFGH", b"even"))
    assert [c.kind for c in webp_chunks(data)] == [b"ABCD"]
