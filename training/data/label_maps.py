"""Label maps: class ids from the colours of CMP Facades (Tyleček & Šára, GCPR 2013), instances, stacks with a picture.

Facade classes have the numbers of CMP's own label files, so that these files can be sent to the trained model
unchanged; 0 means no class.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

FACADE_COLOURS: dict[str, tuple[int, int, int]] = {
    "background": (0, 1, 222),
    "facade": (1, 49, 251),
    "window": (5, 123, 252),
    "door": (9, 203, 253),
    "cornice": (39, 250, 230),
    "sill": (114, 250, 156),
    "balcony": (193, 253, 68),
    "blind": (250, 239, 16),
    "deco": (252, 157, 9),
    "molding": (250, 81, 6),
    "pillar": (241, 5, 11),
    "shop": (172, 1, 4),
}
"""Mean RGB of each class in the training pairs, in the order of the class numbers 1 to 12."""
FACADE_CLASSES = len(FACADE_COLOURS) + 1
_MAX_COLOUR_DISTANCE = 40.0
"""RGB distance to the nearest class colour from which a pixel counts as a mixture of neighbouring classes."""


def facade_labels(colours: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Convert colours H×W×3 to class numbers H×W, 1 to 12.

    Each pixel gets the class of the nearest colour. JPEG mixes colours at borders, and a mixture may lie near a third
    class. So a mixed pixel gets the nearest colour among those of the unmixed pixels at most two pixels away.
    """
    table = np.array(list(FACADE_COLOURS.values()), np.float32)
    gaps = np.linalg.norm(colours[:, :, None].astype(np.float32) - table, axis=3)
    nearest = gaps.argmin(2)
    sure = gaps.min(2) < _MAX_COLOUR_DISTANCE
    around = np.ones((5, 5), np.uint8)
    shown = [cv2.dilate((sure & (nearest == index)).astype(np.uint8), around) for index in range(len(table))]
    known = np.stack(shown, 2) > 0
    by_neighbours = np.where(known, gaps, np.inf).argmin(2)
    chosen = np.where(~sure & known.any(2), by_neighbours, nearest)
    labels: NDArray[np.uint8] = (chosen + 1).astype(np.uint8)
    return labels


def connected_parts(labels: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Number the connected parts of each class, H×W: instance ids for data without any; they repeat after 65,535."""
    parts, count = np.zeros(labels.shape, np.int64), 0
    for label in np.unique(labels):
        inside = labels == label
        number, found = cv2.connectedComponents(inside.astype(np.uint8))
        parts[inside] = np.asarray(found)[inside] + count
        count += number - 1
    return parts.astype(np.uint16)


def stack_labels(
    labels: NDArray[np.uint8], instances: NDArray[np.uint16] | None, picture: NDArray[np.uint8], size: tuple[int, int]
) -> NDArray[np.uint8]:
    """Resize ids H×W (nearest neighbour) and a picture (bicubic) to height and width; returns height×width×6.

    The channels are the class, the low and the high byte of the instance id, and RGB. Without `instances` the connected
    parts of the classes are the instances.
    """
    fitted = _nearest(labels, size)
    parts = connected_parts(fitted) if instances is None else _nearest(instances, size)
    resized = Image.fromarray(np.ascontiguousarray(picture)).resize(size[::-1], Image.Resampling.BICUBIC)
    ids = [(parts & 0xFF).astype(np.uint8), (parts >> 8).astype(np.uint8)]
    return np.concatenate([np.stack([fitted, *ids], 2), np.asarray(resized)], axis=2)


def ids_of_pairs(pairs: Tensor) -> Tensor:
    """Convert N×6×H×W pairs in [0, 1] to integers N×3×H×W: the class and both bytes of the instance id."""
    return (pairs[:, :3] * 255).round().int()


def _nearest(ids: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    rows, columns = (
        ((np.arange(want) + 0.5) * have / want).astype(np.intp) for have, want in zip(ids.shape, size, strict=True)
    )
    found: NDArray[Any] = ids[rows[:, None], columns]
    return found
