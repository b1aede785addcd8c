"""A lane pool on a GPU in host memory, and requests with what the CPU makes of them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engines.manifest import Manifest
from service.core.batch_rows import Crop
from service.core.picture_work import PictureWork
from service.core.pictures import Bool2D, Size
from service.devices.pictures.lane_pool import LanePool, PictureInProgress
from service.imaging.crops import plan_crops
from service.imaging.files.codec import decode
from service.imaging.files.header import read_header
from service.imaging.postprocess import paste_fills
from service.imaging.preprocess import inpaint_sample
from tests.fakes.picture_gpu import work_on

Bytes = NDArray[np.uint8]
TIMEOUT_S = 10


@dataclass
class Request:
    """A picture to fill, and the arrays that the pool writes."""

    data: bytes
    mask: Bool2D
    crops: list[Crop]
    work: PictureWork
    manifest: Manifest
    tiles: list[Bytes] = field(init=False)
    masks: list[Bytes] = field(init=False)
    result: Bytes = field(init=False)

    def __post_init__(self) -> None:
        self.tiles = [np.zeros((*crop.tile, 3), np.uint8) for crop in self.crops]
        self.masks = [np.zeros(crop.tile, np.uint8) for crop in self.crops]
        self.result = np.zeros((*self.mask.shape, 3), np.uint8)

    @cached_property
    def fills(self) -> list[Bytes]:
        draw = np.random.default_rng(len(self.data))
        return [draw.integers(0, 256, (*crop.tile, 3), np.uint8) for crop in self.crops]

    def hand_to(self, pool: LanePool) -> PictureInProgress:
        return pool.begin(self.work, self.tiles, self.masks)

    def paste(self, picture: PictureInProgress) -> None:
        picture.paste(self.fills, self.result).result(TIMEOUT_S)

    def assert_as_on_the_cpu(self) -> None:
        upload = decode(self.data, max_pixels=10**7)
        for crop, tile, mask in zip(self.crops, self.tiles, self.masks, strict=True):
            sample = inpaint_sample(upload, self.mask, crop, self.manifest).arrays
            assert _levels_off(tile, sample["image"]) <= 1
            np.testing.assert_array_equal(mask, sample["mask"])
        expected = paste_fills(upload, self.mask, self.crops, self.fills).pixels
        assert _levels_off(self.result, expected) <= 1
        np.testing.assert_array_equal(self.result[~self.mask], expected[~self.mask])


def make_request(manifest: Manifest, seed: int = 0, **options: Any) -> Request:
    """A request with a noisy picture of some size, and holes at its borders and within."""
    draw = random.Random(seed)
    size = Size(draw.randint(40, 90), draw.randint(40, 120))
    noise = np.random.default_rng(seed).integers(0, 256, (size.height // 4 + 1, size.width // 4 + 1, 3), np.uint8)
    picture = Image.fromarray(noise).resize((size.width, size.height), Image.Resampling.BICUBIC)
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = draw.randint(1, 8)
    chosen = {"quality": 90, "subsampling": draw.choice((0, 2)), "exif": exif, **options}
    picture.save(file, "JPEG", **chosen)
    header = read_header(file.getvalue(), max_pixels=10**6)
    mask = np.zeros(header.size, np.bool_)
    for _ in range(draw.randint(1, 3)):
        top, left = draw.randrange(mask.shape[0] - 8), draw.randrange(mask.shape[1] - 8)
        mask[top : top + draw.randint(1, 30), left : left + draw.randint(1, 30)] = True
    crops = plan_crops(mask, manifest.size, draw.choice(("whole", "crop")))
    return Request(file.getvalue(), mask, crops, work_on(file.getvalue(), mask, crops, manifest), manifest)


def _levels_off(ours: Any, theirs: Any) -> int:
    return int(np.abs(ours.astype(np.int16) - theirs).max())


OpenLanePool = Callable[..., LanePool]
