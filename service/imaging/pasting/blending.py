"""Pastes a fill into a picture and blends it in the seam with OpenCV and numpy, if the extension was not compiled."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from service.core.pictures import Bool2D, Pixels
from service.imaging.pasting.seam import Seam


def paste(picture: Pixels, fill: Pixels, hole: Bool2D, seam: Seam) -> None:
    """Paste a fill into a picture; over the seam it is blended with the nearest colour outside the mask.

    Uses few calls on whole arrays, which release the GIL.

    Args:
        picture: H×W×C, written to where the hole is; may be a view.
        fill: H×W×C of the same type; it is not changed.
        hole: H×W, True where pixels are replaced.
        seam: found in the mask of all holes, so that `nearest` is outside them all.
    """
    filled: Any = fill
    if seam.indices.size:
        filled = fill.copy()
        rows, weights = filled.reshape(-1, fill.shape[2]), seam.weights[:, None]
        nearest = picture.reshape(-1, picture.shape[2]).take(seam.nearest, axis=0)
        own = np.multiply(weights, rows.take(seam.indices, axis=0), dtype=np.float32)
        own += np.multiply(1 - weights, nearest, dtype=np.float32)
        _as_items(rows).put(seam.indices, _as_items(np.rint(own, out=own).astype(filled.dtype)))
    cv2.copyTo(filled, np.ascontiguousarray(hole).view(np.uint8), picture)


def _as_items(rows: Any) -> Any:
    """View of the pixels with all C samples of a pixel as one item, which numpy writes four times as fast."""
    return rows.view(np.dtype((np.void, rows.strides[0]))).reshape(-1)
