"""The texture stage: the fill of a net gets texture that is copied from the known part of the picture.

Sources: Barnes et al., "PatchMatch", SIGGRAPH 2009; Wexler et al., "Space-Time Completion of Video", PAMI 2007 (search
and vote in turn); Darabi et al., "Image Melding", SIGGRAPH 2012 (low frequencies apart from texture, coherence, the
blend of the votes).
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from service.core.pictures import Bool2D
from service.imaging.pool.parallel_steps import StepRunner, run_sequentially
from service.imaging.texture.level import Level
from service.imaging.texture.parameters import REACH, Parameters
from service.imaging.texture.patch_match import Floats, Kernel

Rgb = NDArray[np.uint8]
DEFAULT_PARAMETERS = Parameters()


def add_texture(
    fill: Rgb,
    hole: Bool2D,
    kernel: Kernel,
    parameters: Parameters = DEFAULT_PARAMETERS,
    redrawn: Bool2D | None = None,
    run_steps: StepRunner = run_sequentially,
) -> Rgb | None:
    """Return the fill H×W×3 with copied texture in the hole H×W; other pixels keep their bits.

    Returns None if too few patches are known. The same arguments give the same bytes, whatever the number of threads.

    Args:
        fill: the picture, filled by the net.
        hole: True where nothing is copied from.
        kernel: the compiled loops.
        parameters: the choices of the stage.
        redrawn: the part of the hole that gets texture; None: all of it.
        run_steps: runs several steps in parallel.
    """
    if min(hole.shape) <= 2 * REACH:  # no patch fits; blurs of such pictures would take more than BYTES_PER_PIXEL
        return None
    redrawn = hole if redrawn is None else redrawn
    full = np.ascontiguousarray(fill, np.float32) / np.float32(255)
    level = Level(full, hole, redrawn, parameters, 1, run_steps)
    if not redrawn.any() or not level.has_sources:
        return None
    halved = _halved_picture(full), _halved(hole), _halved(redrawn)
    half = Level(*halved, parameters, 2, run_steps)
    if half.has_sources and len(half.view.targets):
        half.search_from_scratch(kernel)
        for number in range(parameters.half_rounds):
            half.improve(kernel, number)
        level.upsample_matches(half, np.random.default_rng(parameters.seed))
    else:
        level.search_from_scratch(kernel)
    level.start(kernel)
    for number in range(parameters.rounds):
        level.improve(kernel, number)
    drawn = np.rint(level.picture().clip(0, 1) * 255)
    return np.asarray(np.where(redrawn[..., None], drawn, fill), np.uint8)


def _halved_picture(picture: Floats) -> Floats:
    """Halve both sides, without the last row or column of an odd one."""
    height, width = picture.shape[0] // 2, picture.shape[1] // 2
    if not height or not width:
        return np.zeros((height, width, 3), np.float32)
    small: Any = cv2.resize(picture[: 2 * height, : 2 * width], (width, height), interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.float32)


def _halved(hole: Bool2D) -> Bool2D:
    """Halve both sides; a pixel is marked if any of its four is."""
    height, width = hole.shape[0] // 2, hole.shape[1] // 2
    return np.asarray(hole[: 2 * height, : 2 * width].reshape(height, 2, width, 2).any(axis=(1, 3)))
