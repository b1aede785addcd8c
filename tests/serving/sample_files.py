"""Pictures and encoded files that the codec's tests share."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from service.core.pictures import Picture
from tests.serving import image_files as files

LIMIT = 50_000_000


DATA = Path(__file__).resolve().parents[1] / "data"


RANDOM = np.random.default_rng(0)


RGB = RANDOM.integers(0, 256, (17, 23, 3), np.uint8)


PHOTO = np.asarray(Image.open(DATA / "skirt.jpg"))


PROFILE = files.icc_profile()


def noise(dtype: Any, channels: int, size: tuple[int, int] = (17, 23)) -> NDArray[Any]:
    return RANDOM.integers(0, np.iinfo(dtype).max + 1, (*size, channels), dtype)


def joined(picture: Picture) -> NDArray[Any]:
    return picture.pixels if picture.alpha is None else np.dstack((picture.pixels, picture.alpha))


def pillow(data: bytes, mode: str) -> NDArray[Any]:
    return np.asarray(Image.open(io.BytesIO(data)).convert(mode))
