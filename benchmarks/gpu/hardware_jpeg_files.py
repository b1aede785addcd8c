"""The files of hardware_jpeg.py: their classes, pictures encoded in many ways, and damaged copies with verdicts."""

from __future__ import annotations

import io
import random
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from service.core.picture_work import JpegPlanes


def frame_of(data: bytes) -> tuple[int, int, int, list[tuple[int, int, int]]]:
    """Return the marker of the frame, height, width, and the id and factors of each component."""
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            break
        kind, length = data[at + 1], struct.unpack_from(">H", data, at + 2)[0]
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width, count = struct.unpack_from(">HHB", data, at + 5)
            parts = [
                (data[at + 10 + 3 * n], data[at + 11 + 3 * n] >> 4, data[at + 11 + 3 * n] & 15) for n in range(count)
            ]
            return kind, height, width, parts
        at += 2 + length
    return 0, 0, 0, []


def class_of(data: bytes) -> tuple[str, JpegPlanes | None]:
    """Return the class of a file, and the layout of its planes if the hardware may know it."""
    kind, height, width, parts = frame_of(data)
    factors = [part[1:] for part in parts]
    name = {0xC0: "baseline", 0xC1: "extended", 0xC2: "progressive"}.get(kind, f"SOF{kind - 0xC0}")
    if len(parts) != 3:
        return f"{name} {len(parts)} components", None
    sampling = {(1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0", (1, 2): "4:4:0"}.get(factors[0], str(factors))
    odd = "odd" if height % 16 or width % 16 else "whole blocks"
    planes = (
        JpegPlanes(height, width, *factors[0])
        if factors[1:] == [(1, 1)] * 2 and factors[0] in ((1, 1), (2, 1), (2, 2))
        else None
    )
    return f"{name} {sampling} {odd}", planes


def made(folder: Path) -> Iterator[bytes]:
    """Encode the pictures of a folder in different ways."""
    draw = random.Random(5)
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (700, 900, 3), np.uint8))
    pictures = [
        Image.open(path).convert("RGB") for path in sorted(folder.rglob("*")) if path.suffix in {".png", ".jpg"}
    ]
    pictures = [picture for picture in pictures if min(picture.size) >= 300] + [noise]
    for number in range(360):
        picture = pictures[number % len(pictures)]
        width, height = (
            (draw.randrange(64, 700), draw.randrange(64, 500))
            if number % 2
            else (draw.randrange(4, 40) * 16, draw.randrange(4, 30) * 16)
        )
        width, height = min(width, picture.width), min(height, picture.height)
        left, top = draw.randrange(picture.width - width + 1), draw.randrange(picture.height - height + 1)
        part = picture.crop((left, top, left + width, top + height))
        options: dict[str, Any] = {"quality": draw.choice((10, 40, 75, 90, 95, 100)), "subsampling": number % 3}
        if number % 7 == 3:
            options["optimize"] = True
        if number % 7 == 5:
            options["restart_marker_blocks"] = draw.choice((1, 5, 64))
        if number % 40 == 39:
            options["progressive"] = True
        yield encoded(part, options)
    for side in (1, 2, 8, 15, 16, 17, 24, 31, 32, 33, 48, 63):
        for subsampling in (0, 1, 2):
            yield encoded(pictures[0].crop((0, 0, side, side)), {"subsampling": subsampling, "quality": 90})


def encoded(picture: Image.Image, options: dict[str, Any]) -> bytes:
    """Encode a picture as JPEG."""
    file = io.BytesIO()
    picture.save(file, "JPEG", **options)
    return file.getvalue()


def damages(data: bytes, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Damage a file in the part that holds its picture."""
    draw = random.Random(seed)
    start = data.index(b"\xff\xda") + 14
    for number in range(count):
        broken = bytearray(data)
        at = draw.randrange(start, len(data) - 2)
        kind = ("bit", "cut", "cut, then EOI", "zeros", "one byte less", "bits")[number % 6]
        if kind == "bit":
            broken[at] ^= 1 << draw.randrange(8)
        elif kind == "bits":
            for _ in range(20):
                broken[draw.randrange(start, len(data) - 2)] ^= 1 << draw.randrange(8)
        elif kind == "cut":
            del broken[at:]
        elif kind == "cut, then EOI":
            broken[at:] = b"\xff\xd9"
        elif kind == "zeros":
            broken[at : at + 60] = bytes(len(broken[at : at + 60]))
        else:
            del broken[at]
        yield kind, bytes(broken)


def sound(data: bytes) -> bool:
    """Return whether the scan has no marker but those of restarts until the end of the picture."""
    marker = re.search(rb"\xff[^\x00\xd0-\xd7\xff]", data[data.index(b"\xff\xda") + 2 :])
    return marker is not None and marker.group() == b"\xff\xd9"


def verdicts(files: list[Path], count: int) -> list[Any]:
    """Return what the strict decoder says of each damaged file, and the checksum of what the lenient one gives."""
    import simplejpeg  # noqa: PLC0415 -- not on every GPU host

    found = []
    for seed, path in enumerate(files):
        for kind, data in damages(path.read_bytes(), seed, count):
            try:
                simplejpeg.decode_jpeg(data)
                strict = "fine"
            except ValueError as error:
                strict = str(error)
            try:
                crc = zlib.crc32(simplejpeg.decode_jpeg(data, strict=False).tobytes())
            except ValueError:
                crc = -1
            found.append([kind, strict, crc, sound(data)])
    return found
