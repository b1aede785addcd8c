"""Maps of class and instance ids: files to exact integers, scaled without mixing them. Pure.

A map is a PNG: grey of 1 to 16 bits, whose values are the ids (never stretched to 0–255), or with a palette, whose
indices are the ids and whose colours are for people (Cityscapes, Pascal VOC). Alpha is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.errors import InvalidOption, UnsupportedType
from service.core.pictures import Picture, Size
from service.core.samples import Crop
from service.imaging.files.header import read_header
from service.imaging.files.png import decode_indices

Ids = NDArray[np.int32]
"""H×W, 0 … 65535."""
_BYTE_IDS = 256


def decode_ids(data: bytes, part: str, *, max_pixels: int) -> Ids:
    """The ids in a PNG, as they are stored: label maps carry no orientation.

    Args:
        data: the file.
        part: what it is called in messages.
        max_pixels: the pixel budget.

    Raises:
        UnsupportedType: code `not_ids`: a JPEG or WebP, whose values are not exact, or colours, which are no ids.
        UnsupportedType, TooLarge, InvalidImage: as `codec.decode`.
    """
    header = read_header(data, max_pixels=max_pixels)
    if header.format != "png":
        raise UnsupportedType(
            f"`{part}` is a {header.format.upper()}, which changes ids; send a grey or palette PNG", code="not_ids"
        )
    if header.colour == "rgb":
        raise UnsupportedType(
            f"`{part}` is an RGB PNG, whose colours are no ids; send a grey or palette PNG", code="not_ids"
        )
    return decode_indices(data, header).astype(np.int32)


def decode_labels(data: bytes, classes: int | None, *, max_pixels: int) -> Picture:
    """The class ids in a PNG, as the pixels of a grey picture.

    Args:
        data: the file.
        classes: how many the model knows; 256 where it does not say.
        max_pixels: the pixel budget.

    Raises:
        InvalidOption: code `unknown_class`: an id is not below `classes`; the message names the largest.
        UnsupportedType, TooLarge, InvalidImage: as `decode_ids`.
    """
    labels = decode_ids(data, "image", max_pixels=max_pixels)
    limit, largest = classes or _BYTE_IDS, int(labels.max())
    if largest >= limit:
        raise InvalidOption(
            f"the label map holds the class id {largest}; the model knows 0 to {limit - 1}", code="unknown_class"
        )
    return Picture(labels.astype(np.uint8)[:, :, None])


def fitted(ids: NDArray[Any], crop: Crop) -> NDArray[Any]:
    """The ids of the crop's tile: nearest neighbour, as Pillow takes it, then reflected at the lower and right edge."""
    rows, columns = _nearest(ids.shape[0], crop.scaled.height), _nearest(ids.shape[1], crop.scaled.width)
    scaled = ids if Size(*ids.shape) == crop.scaled else ids[rows[:, None], columns]
    missing = (0, crop.tile.height - crop.scaled.height), (0, crop.tile.width - crop.scaled.width)
    return np.ascontiguousarray(np.pad(scaled, missing, "reflect"))


def _nearest(have: int, want: int) -> NDArray[np.intp]:
    """For each of `want` pixels the one of `have` that its centre falls on."""
    return ((np.arange(want) + 0.5) * have / want).astype(np.intp)
