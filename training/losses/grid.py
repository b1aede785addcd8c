"""The contrast of fills by position modulo 4: uneven if a net that outputs 4×4 pixels per position draws a grid."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor

PERIOD = 4
_DEEP = 8
"""Distance in pixels from the edge of a hole below which pixels do not count: they continue the surroundings."""


def sum_contrasts(picture: Tensor, hole: Tensor) -> Tensor:
    """Sum and count |difference| of neighbouring pixels deep inside the hole, by position modulo 4.

    Args:
        picture: N×C×H×W, on the net's grid.
        hole: N×1×H×W, 1 = filled.

    Returns:
        2×2×4: for neighbours in a column by row, then in a row by column; the sums, then the counts.
    """
    known = F.pad(1 - hole, [_DEEP] * 4, value=0.0)  # the picture's border is not an edge of the hole
    deep = 1 - F.max_pool2d(known, 2 * _DEEP + 1, 1)
    found = []
    for axis in (2, 3):
        length = picture.shape[axis] - 1
        one, other = picture.narrow(axis, 0, length), picture.narrow(axis, 1, length)
        counted = deep.narrow(axis, 0, length) * deep.narrow(axis, 1, length)
        contrast = (one - other).float().abs().mean(1, keepdim=True) * counted
        rest = tuple(other for other in range(4) if other != axis)
        lines = F.pad(torch.stack([contrast.sum(rest), counted.sum(rest)]), [0, -length % PERIOD])
        found.append(torch.unflatten(lines, 1, (-1, PERIOD)).sum(1))
    return torch.stack(found)


def grid_unevenness(contrasts: Tensor) -> tuple[float, float]:
    """Return how uneven summed contrasts are, by row and by column: (largest - smallest) / mean.

    0 if no pixel lies deep enough in a hole. Photographs are near 0.
    """
    means = contrasts[:, 0] / contrasts[:, 1].clamp(min=1)
    spread = (means.amax(1) - means.amin(1)) / means.mean(1).clamp(min=1e-8)
    rows, columns = spread.tolist()
    return rows, columns
