"""The planes of a JPEG before chroma is enlarged, by libjpeg-turbo: what a GPU's hardware decoder gives."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from service.core.picture_work import JpegPlanes


def planes_of(data: bytes, planes: JpegPlanes) -> list[NDArray[np.uint8]]:
    """Luma and two planes of chroma of a file that is 4:4:4 or 4:2:0.

    At half the size libjpeg decodes subsampled chroma as it is stored, because it need not be enlarged then.
    """
    luma, blue, red = _drafted(data, 1)
    if (planes.across, planes.down) == (2, 2):
        _, blue, red = _drafted(data, 2)
    assert blue.shape == planes.chroma
    return [luma, blue, red]


def _drafted(data: bytes, divisor: int) -> list[NDArray[np.uint8]]:
    with Image.open(io.BytesIO(data)) as image:
        image.draft("YCbCr", (max(1, image.width // divisor), max(1, image.height // divisor)))
        pixels: Any = np.asarray(image)
    return [np.ascontiguousarray(pixels[:, :, number]) for number in range(3)]
