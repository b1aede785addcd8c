"""Colour conversion for models that colour grey pictures: CIELAB's L is their input, a and b are their output. Pure.

The result keeps the upload's lightness at full resolution; only its colours come from the model.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from service.core.pictures import Picture
from service.imaging.files.pixels import to_8_bits, to_channels

AB_RANGE = 220.0
"""Width of the range of a and b: the model's 0…1 stands for -110…110."""


def lightness(picture: Picture) -> Picture:
    """The lightness L of a picture as a grey picture; 0–100 is scaled to 0–255."""
    lab: Any = cv2.cvtColor(to_channels(to_8_bits(picture.pixels), 3), cv2.COLOR_RGB2LAB)
    return Picture(np.ascontiguousarray(np.asarray(lab, np.uint8)[:, :, :1]))


def apply_colours(picture: Picture, ab: NDArray[np.uint8]) -> Picture:
    """The picture in 8-bit RGB, with its own lightness and the colours of `ab` (H×W×2 of any size). Alpha is kept."""
    unit = to_channels(to_8_bits(picture.pixels), 3).astype(np.float32) / np.float32(255)
    lab: Any = cv2.cvtColor(unit, cv2.COLOR_RGB2LAB)
    size = picture.size
    scaled: Any = cv2.resize(ab.astype(np.float32), (size.width, size.height), interpolation=cv2.INTER_CUBIC)
    lab[:, :, 1:] = (scaled / 255 - 0.5) * AB_RANGE
    painted: Any = cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)
    rgb = np.rint(np.clip(painted, 0, 1) * 255).astype(np.uint8)
    return Picture(rgb, None if picture.alpha is None else to_8_bits(picture.alpha), None)
