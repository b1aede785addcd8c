"""Label maps of class or instance ids: decoded to exact integers, and scaled without mixing ids. Pure.

A map is a grey PNG of 1 to 16 bits, whose values are the ids, or a palette PNG, whose indices are the ids and whose
colours are only for display (Cityscapes, Pascal VOC). Alpha is ignored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.batch_rows import Crop
from service.core.errors import InvalidOption, UnsupportedType
from service.core.pictures import Picture, Size
from service.imaging.files.header import read_header
from service.imaging.files.png import decode_indices

Ids = NDArray[np.int32]
"""H×W of ids, 0 … 65535."""
_BYTE_IDS = 256


def decode_ids(data: bytes, *, max_pixels: int) -> Ids:
    """Decode the ids of a PNG as stored; an EXIF orientation is ignored.

    Args:
        data: the file.
        max_pixels: limit of height × width.

    Raises:
        UnsupportedType: code `not_ids`: a JPEG or WebP, which changes values, or an RGB PNG, which has no ids.
        UnsupportedType, TooLarge, InvalidImage: as `codec.decode`.
    """
    header = read_header(data, max_pixels=max_pixels)
    if header.format != "png":
        raise UnsupportedType(
            f"it is a {header.format.upper()}, which does not keep ids exact; send a grey or palette PNG",
            code="not_ids",
        )
    if header.colour == "rgb":
        raise UnsupportedType("it is an RGB PNG, whose colours are not ids; send a grey or palette PNG", code="not_ids")
    return decode_indices(data, header).astype(np.int32)


def decode_labels(data: bytes, classes: int | None, *, max_pixels: int) -> Picture:
    """Decode the class ids of a PNG to the pixels of a grey picture.

    Args:
        data: the file.
        classes: number of classes of the model; None means 256.
        max_pixels: limit of height × width.

    Raises:
        InvalidOption: code `unknown_class`: an id is not below `classes`; the message names the largest id.
        UnsupportedType, TooLarge, InvalidImage: as `decode_ids`.
    """
    labels = decode_ids(data, max_pixels=max_pixels)
    limit, largest = classes or _BYTE_IDS, int(labels.max())
    if largest >= limit:
        raise InvalidOption(
            f"the label map has the class id {largest}; the model's classes are 0 to {limit - 1}", code="unknown_class"
        )
    return Picture(labels.astype(np.uint8)[:, :, None])


def fit_ids_to_tile(ids: NDArray[Any], crop: Crop) -> NDArray[Any]:
    """Scale ids to the crop's tile by nearest neighbour, as Pillow does, and pad by reflection at the lower right."""
    rows, columns = (
        _nearest_source_indices(ids.shape[0], crop.scaled.height),
        _nearest_source_indices(ids.shape[1], crop.scaled.width),
    )
    scaled = ids if Size(*ids.shape) == crop.scaled else ids[rows[:, None], columns]
    missing = (0, crop.tile.height - crop.scaled.height), (0, crop.tile.width - crop.scaled.width)
    return np.ascontiguousarray(np.pad(scaled, missing, "reflect"))


def _nearest_source_indices(have: int, want: int) -> NDArray[np.intp]:
    """The indices of the nearest of `have` source pixels, one for each of `want` target pixels."""
    return ((np.arange(want) + 0.5) * have / want).astype(np.intp)
