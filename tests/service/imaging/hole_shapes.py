"""Masks with holes of simple shapes, and a size rule with measured rules for them."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from engines.fill_rules import FillRule, FillRules
from engines.manifest import MultipleSize

LIMITED = MultipleSize(multiple_of=128, sides=(256, 512), max_hole_radius=32)


def ellipses(size: tuple[int, int], *shapes: tuple[int, int, int, int]) -> NDArray[np.bool_]:
    mask = np.zeros(size, np.uint8)
    for x, y, a, b in shapes:
        cv2.ellipse(mask, (x, y), (a, b), 0, 0, 360, 1, -1)
    return mask.astype(np.bool_)


def ruled(*rules: FillRule) -> MultipleSize:
    """Return LIMITED with measured rules for `auto`."""
    return LIMITED.model_copy(update={"auto": FillRules(measured="in a test", rules=rules)})
