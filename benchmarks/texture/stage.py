"""The texture stage: the fill of a net gets texture that is copied from the known part of the picture.

Sources: Barnes et al., "PatchMatch", SIGGRAPH 2009; Wexler et al., "Space-Time Completion of Video", PAMI 2007 (search
and vote in turn); Darabi et al., "Image Melding", SIGGRAPH 2012 (low frequencies apart from texture, coherence).
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from benchmarks.texture.level import Level
from benchmarks.texture.parameters import Parameters
from benchmarks.texture.patch_match import Floats, Kernel
from training.evaluate.cases import Pixels
from training.evaluate.holes import Mask


def add_texture(fill: Pixels, hole: Mask, kernel: Kernel, parameters: Parameters, seed: int = 0) -> Pixels:
    """Return the fill H×W×3 with copied texture in the hole H×W; other pixels keep their bits.

    Where too few patches are known it is the fill itself. The same arguments give the same bytes.
    """
    full = np.ascontiguousarray(fill, np.float32) / np.float32(255)
    level = Level(full, hole, parameters, 1)
    if not hole.any() or not level.has_sources:
        return fill.copy()
    half = Level(*_halved(full, hole), parameters, 2)
    if half.has_sources and len(half.view.targets):
        half.search_afresh(kernel, seed)
        level.take_matches(half, np.random.default_rng(seed))
    else:
        level.search_afresh(kernel, seed)
    for number in range(parameters.rounds):
        level.improve(kernel, seed + 1 + number)
    drawn = np.rint(level.picture().clip(0, 1) * 255).astype(np.uint8)
    return np.where(hole[..., None], drawn, fill)


def _halved(picture: Floats, hole: Mask) -> tuple[Floats, Mask]:
    """Halve both sides, without the last row or column of an odd one; a pixel is known if all four of it are."""
    height, width = hole.shape[0] // 2, hole.shape[1] // 2
    even = picture[: 2 * height, : 2 * width]
    small: Any = cv2.resize(even, (width, height), interpolation=cv2.INTER_AREA)
    marked: Any = hole[: 2 * height, : 2 * width].reshape(height, 2, width, 2).any(axis=(1, 3))
    return small, marked
