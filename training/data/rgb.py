"""Converts any picture that Pillow opened to 8-bit RGB."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image


def to_rgb(image: Image.Image) -> NDArray[np.uint8]:
    """Return H×W×3; 16-bit grey is divided by 257, as in the service, because Pillow's `convert` clips at 255."""
    if image.mode.startswith("I;16"):
        scaled: Any = cv2.convertScaleAbs(np.asarray(image).astype(np.uint16), alpha=1 / 257)
        image = Image.fromarray(np.asarray(scaled, np.uint8))
    return np.asarray(image.convert("RGB"))
