"""Bad images and masks, each with its documented answer."""

from __future__ import annotations

import struct

import numpy as np

from tests.serving import image_files as files
from tests.serving.bad_request import (
    JPEG,
    MASK,
    PHOTO,
    PIXELS,
    PROGRESSIVE,
    SIDE,
    WEBP,
    BadRequest,
    grey,
    with_image,
    with_mask,
)


def image_cases() -> list[BadRequest]:
    unsupported = {
        "text": b"hello, I am a picture",
        "html": b"<!DOCTYPE html><html></html>",
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
        "gif": files.saved(PIXELS, "GIF"),
        "bmp": files.saved(PIXELS, "BMP"),
        "tiff": files.saved(PIXELS, "TIFF"),
        "heic": b"\0\0\0\x1cftypheic" + bytes(64),
        "avif": b"\0\0\0\x1cftypavif" + bytes(64),
        "pdf": b"%PDF-1.7\n",
        "zip": b"PK\x03\x04" + bytes(30),
        "zeros": bytes(1000),
        "12-bit jpeg": JPEG.replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc1\x00\x11\x0c"),
        "lossless jpeg": JPEG.replace(b"\xff\xc0\x00\x11", b"\xff\xc3\x00\x11"),
    }
    animated = {
        "animated webp": files.riff(files.vp8x(9, 9, flags=2)),
        "animated png": files.png(PIXELS, files.chunk(b"acTL", struct.pack(">II", 3, 0))),
    }
    too_many = {
        "bomb of 169 megapixels": files.png_bomb(),
        "png of 2^31 - 1 squared": files.PNG_SIGNATURE + files.ihdr(2**31 - 1, 2**31 - 1),
        "png of one long row": files.PNG_SIGNATURE + files.ihdr(70_000, 1),
        "jpeg of 65535 squared": files.jpeg_with_size(JPEG, 65_535, 65_535),
        "webp of 16384 squared": files.riff(files.vp8l_header(16_384, 16_384)),
        "webp canvas of 16384 squared": files.riff(files.vp8x(16_384, 16_384), files.vp8l_header(1, 1)),
    }
    return [
        *(with_image(name, 415, "unsupported_type", data) for name, data in unsupported.items()),
        *(with_image(name, 415, "animated_image", data) for name, data in animated.items()),
        *(with_image(name, 413, "too_many_pixels", data) for name, data in too_many.items()),
        *(with_image(name, 400, "invalid_image", data) for name, data in broken_images().items()),
        with_image("empty", 400, "empty_part", b""),
        with_image("1×1 with a mask of 64×64", 400, "sizes_differ", grey(9, 1, 1)),
        with_image("1×1 with a white mask", 422, "mask_full", grey(9, 1, 1), grey(255, 1, 1)),
        with_image("1×1 with a black mask", 422, "mask_empty", grey(9, 1, 1), grey(0, 1, 1)),
    ]


def broken_images() -> dict[str, bytes]:
    rows = files.png_rows(np.zeros((SIDE, 3 * SIDE), np.uint8))
    last_scan = PROGRESSIVE.rindex(b"\xff\xda")
    return {
        "jpeg cut in half": JPEG[: len(JPEG) // 2],
        "jpeg cut in its header": JPEG[:100],
        "jpeg without its last byte": JPEG[:-1],
        "jpeg cut and ended": JPEG[: len(JPEG) // 2] + b"\xff\xd9",
        "jpeg of two markers": b"\xff\xd8\xff\xd9",
        "jpeg of 70,000 segments": b"\xff\xd8" + files.jpeg_segment(0xFE, b"") * 70_000,
        "jpeg of 300 scans": PROGRESSIVE[:-2] + PROGRESSIVE[last_scan:-2] * 300 + b"\xff\xd9",
        "jpeg of height 0": files.jpeg_with_size(JPEG, SIDE, 0),
        "jpeg with random scan data": JPEG[:640] + np.random.default_rng(1).bytes(len(JPEG) - 642) + b"\xff\xd9",
        "png cut in half": PHOTO[: len(PHOTO) // 2],
        "png without its last byte": PHOTO[:-1],
        "png signature only": files.PNG_SIGNATURE,
        "png with a wrong checksum": PHOTO[:60] + bytes((PHOTO[60] ^ 1,)) + PHOTO[61:],
        "png of width 0": files.png_of_chunks(files.ihdr(0, SIDE), files.chunk(b"IDAT", rows)),
        "png of 0×0": files.png_of_chunks(files.ihdr(0, 0), files.chunk(b"IDAT", rows)),
        "png without data": files.png_of_chunks(files.ihdr(SIDE, SIDE)),
        "png with half of its rows": files.png_of_chunks(files.ihdr(SIDE, 2 * SIDE), files.chunk(b"IDAT", rows)),
        "png with garbage for data": files.png_of_chunks(files.ihdr(SIDE, SIDE), files.chunk(b"IDAT", bytes(99))),
        "png of 16 bits with 8-bit data": files.png_of_chunks(files.ihdr(SIDE, SIDE, 16), files.chunk(b"IDAT", rows)),
        "png of an impossible depth": files.png_of_chunks(files.ihdr(SIDE, SIDE, 7), files.chunk(b"IDAT", rows)),
        "palette png without a palette": files.png_of_chunks(files.ihdr(9, 9, 8, 3), files.chunk(b"IDAT", rows)),
        "png of 70,000 chunks": files.PNG_SIGNATURE + files.ihdr(9, 9) + files.chunk(b"tEXt", b"") * 70_000,
        "png with a chunk of 4 GB": files.PNG_SIGNATURE + files.ihdr(9, 9) + b"\xff\xff\xff\xffIDAT",
        "png with a profile of 100 MB": files.png(PIXELS, files.inflating_chunk(b"iCCP", b"bomb\0\0")),
        "webp cut in half": WEBP[: len(WEBP) // 2],
        "webp header only": b"RIFF\x04\0\0\0WEBP",
        "webp without pixels": files.riff(files.vp8l_header(SIDE, SIDE)),
    }


def mask_cases() -> list[BadRequest]:
    turned = files.png(np.full((SIDE, SIDE // 2, 1), 255, np.uint8), files.chunk(b"eXIf", files.exif(6)))
    return [
        with_mask("empty", 400, "empty_part", b""),
        with_mask("text", 415, "unsupported_type", b"mask"),
        with_mask("cut in half", 400, "invalid_image", MASK[: len(MASK) // 2]),
        with_mask("bomb of 169 megapixels", 413, "too_many_pixels", files.png_bomb()),
        with_mask("of another size", 400, "sizes_differ", grey(255, SIDE, SIDE + 1)),
        with_mask("turned to another size", 400, "sizes_differ", turned),
        with_mask("black", 422, "mask_empty", grey(0)),
        with_mask("white", 422, "mask_full", grey(255)),
        with_mask("white in mode black", 422, "mask_empty", grey(255), mask_mode="black"),
        with_mask("without alpha in mode alpha", 422, "no_alpha", MASK, mask_mode="alpha"),
    ]
