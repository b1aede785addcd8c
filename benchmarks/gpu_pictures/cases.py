"""Requests for pictures in many kinds of files, and what the CPU's code makes of them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engines.manifest import Manifest
from service.core.batch_rows import Crop
from service.core.errors import ServiceError
from service.core.picture_work import PictureWork
from service.core.pictures import Bool2D, Picture
from service.imaging.crops import plan_crops
from service.imaging.files.codec import decode
from service.imaging.files.header import read_header
from service.imaging.gpu_work import plan_gpu_work
from service.imaging.postprocess import paste_fills
from service.imaging.preprocess import inpaint_sample
from service.imaging.seam import paste_areas
from service.imaging.tasks import MaskPlan

Bytes = NDArray[np.uint8]
MAX_PIXELS = 50_000_000
KINDS = (
    *("4:4:4", "4:2:2", "4:2:0", "4:2:0 turned", "4:2:0 restarts", "as it is"),
    *("progressive", "grey", "CMYK", "PNG", "PNG with alpha", "WebP", "bits flipped", "cut off"),
)
_SUBSAMPLING = {"4:4:4": 0, "4:2:2": 1, "CMYK": 0}
_MODES = {"grey": "L", "CMYK": "CMYK"}


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A picture with a mask. `work` is None where the CPU must decode; `refused`: where that refuses the file."""

    kind: str
    data: bytes
    mask: Bool2D
    crops: list[Crop]
    work: PictureWork | None
    refused: bool
    manifest: Manifest

    def new_arrays(self) -> tuple[list[Bytes], list[Bytes], Bytes]:
        """Arrays for the tiles, their masks, and the result."""
        tiles = [np.zeros((*crop.tile, 3), np.uint8) for crop in self.crops]
        masks = [np.zeros(crop.tile, np.uint8) for crop in self.crops]
        return tiles, masks, np.zeros((*self.mask.shape, 3), np.uint8)

    def samples_by_cpu(self) -> tuple[Picture, list[tuple[Bytes, Bytes]]]:
        """The decoded picture, and the tile and mask of each crop."""
        upload = decode(self.data, max_pixels=MAX_PIXELS)
        samples = [inpaint_sample(upload, self.mask, crop, self.manifest).arrays for crop in self.crops]
        return upload, [(sample["image"], sample["mask"]) for sample in samples]

    def paste_by_cpu(self, upload: Picture, fills: Sequence[Bytes]) -> Bytes:
        """The picture with the fills pasted, as the service does it."""
        places = [paste_areas(self.mask, crop) for crop in self.crops]
        return np.asarray(paste_fills(upload, self.mask, self.crops, fills, places).pixels, np.uint8)


def stand_in_fills(tiles: Sequence[Bytes]) -> list[Bytes]:
    """Fills that differ from their tiles everywhere, in place of an engine's."""
    return [255 - tile for tile in tiles]


def make_cases(
    files: Sequence[Path], manifest: Manifest, count: int, kinds: Sequence[str] = KINDS, seed: int = 0
) -> Iterator[Callable[[], Case]]:
    """Makers of cases of all kinds in turn, from photographs, with sizes and masks by chance.

    Making one takes longer than computing it, so each thread makes its own.
    """
    for number in range(count):
        draw = random.Random(f"{seed}-{number}")
        path = files[number % len(files)]
        kind = kinds[number % len(kinds)]
        yield partial(make_case, path, kind, manifest, draw)


def make_case(path: Path, kind: str, manifest: Manifest, draw: random.Random) -> Case:
    """Make one case of a kind."""
    if kind == "as it is":
        data = path.read_bytes()
    else:
        with Image.open(path) as image:
            data = _encoded(_part_of(image.convert("RGB"), draw), kind, draw)
    try:
        header, refused = read_header(data, max_pixels=MAX_PIXELS), False
        size = header.size
        decode(data, max_pixels=MAX_PIXELS, header=header)
    except ServiceError:
        refused = True
    if refused:
        return Case(kind, data, np.zeros((1, 1), np.bool_), [], _planned_anyway(data, manifest), True, manifest)
    mask = _random_mask(draw, size.height, size.width)
    crops = plan_crops(mask, manifest.size, draw.choice(("auto", "auto", "whole", "crop")))
    return Case(kind, data, mask, crops, plan_work(data, mask, crops, manifest), False, manifest)


def plan_work(data: bytes, mask: Bool2D, crops: list[Crop], manifest: Manifest) -> PictureWork | None:
    """Plan the work on a file, as the service does once its mask is planned; None where the CPU must decode it."""
    header = read_header(data, max_pixels=MAX_PIXELS)
    planned = plan_gpu_work(data, header, lambda: MaskPlan(mask, 0.0, crops), manifest)
    return planned and planned[0]


def _planned_anyway(data: bytes, manifest: Manifest) -> PictureWork | None:
    """The plan for a file that the CPU refuses; anything but None is a fault."""
    try:
        header = read_header(data, max_pixels=MAX_PIXELS)
    except ServiceError:
        return None
    mask = np.zeros(header.size, np.bool_)
    mask[0, 0] = True
    return plan_work(data, mask, plan_crops(mask, manifest.size, "whole"), manifest)


def _part_of(image: Image.Image, draw: random.Random) -> Image.Image:
    """A part of the picture, of any size, or of 512² or 256² as in the tables of speed."""
    side = draw.choice((0, 0, 256, 512))
    if min(image.size) < side:
        image = image.resize((max(side, image.width), max(side, image.height)), Image.Resampling.BICUBIC)
    width = min(image.width, side or draw.randint(33, 1400))
    height = min(image.height, side or draw.randint(33, 1100))
    left, top = draw.randint(0, image.width - width), draw.randint(0, image.height - height)
    return image.crop((left, top, left + width, top + height))


def _encoded(picture: Image.Image, kind: str, draw: random.Random) -> bytes:
    file = io.BytesIO()
    quality = draw.choice((60, 75, 85, 90, 95))
    if kind == "PNG with alpha":
        picture.putalpha(Image.linear_gradient("L").resize(picture.size))
    if kind.startswith(("PNG", "WebP")):
        picture.save(file, kind[:4].strip(), quality=quality)
        return file.getvalue()
    if kind in _MODES:
        picture = picture.convert(_MODES[kind])
    picture.save(file, "JPEG", quality=quality, **_jpeg_options(kind, draw))
    return _damaged(file.getvalue(), kind, draw)


def _jpeg_options(kind: str, draw: random.Random) -> dict[str, Any]:
    options = {"subsampling": _SUBSAMPLING.get(kind, 2), "progressive": kind == "progressive"}
    if kind == "4:2:0 turned":
        exif = Image.Exif()
        exif[0x0112] = draw.randint(2, 8)
        return {**options, "exif": exif}
    if kind == "4:2:0 restarts":
        return {**options, "restart_marker_blocks": draw.choice((1, 5, 64))}
    return options


def _damaged(data: bytes, kind: str, draw: random.Random) -> bytes:
    broken = bytearray(data)
    start = data.index(b"\xff\xda") + 14
    if kind == "cut off":
        del broken[draw.randrange(start, len(data) - 2) :]
    elif kind == "bits flipped":
        for _ in range(draw.choice((1, 20))):
            broken[draw.randrange(start, len(data) - 2)] ^= 1 << draw.randrange(8)
    return bytes(broken)


def _random_mask(draw: random.Random, height: int, width: int) -> Bool2D:
    """A mask with some holes, at borders too."""
    mask = np.zeros((height, width), np.bool_)
    for _ in range(draw.randint(1, 4)):
        top, left = draw.randrange(-9, height - 1), draw.randrange(-9, width - 1)
        tall, wide = draw.randint(1, max(2, height // 3)), draw.randint(1, max(2, width // 3))
        mask[max(0, top) : max(1, top + tall), max(0, left) : max(1, left + wide)] = True
    return mask
