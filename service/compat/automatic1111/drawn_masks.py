"""Turns a mask that was drawn on a transparent ground into one that is white where something was drawn."""

from __future__ import annotations

import numpy as np

from service.core.pictures import Picture
from service.imaging.files import codec
from service.imaging.files.header import Header
from service.imaging.files.pixels import to_8_bits

_DRAWN_ABOVE = 128
"""Greatest alpha of 8 bits that AUTOMATIC1111 does not take as drawn."""


def may_be_drawn(header: Header) -> bool:
    """Return whether a mask has the colours and the alpha channel in which AUTOMATIC1111 looks for drawn strokes."""
    return header.alpha and header.colour == "rgb"


def white_where_drawn(mask: bytes, header: Header, max_pixels: int) -> bytes:
    """Return a PNG that is white where the mask is drawn, whatever the colour; an opaque mask is returned as it is.

    Raises:
        InvalidImage: the file is truncated or corrupt.
    """
    alpha = codec.decode(mask, max_pixels=max_pixels, header=header).alpha
    if alpha is None or alpha.min() == np.iinfo(alpha.dtype).max:
        return mask
    drawn = np.where(to_8_bits(alpha) > _DRAWN_ABOVE, 255, 0).astype(np.uint8)
    return codec.encode(Picture(drawn[:, :, None], None, None), "png", 100)
