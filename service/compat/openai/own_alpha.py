"""Splits a picture whose transparent part is to be filled into an opaque picture and its mask."""

from __future__ import annotations

from service.core.errors import InvalidOption
from service.core.pictures import Picture
from service.imaging.files import codec
from service.imaging.files.header import Header


def check_alpha(header: Header) -> None:
    """Check that a picture that was sent without a mask can serve as its own mask.

    Raises:
        InvalidOption: the picture has no alpha channel.
    """
    if not header.alpha and not header.transparent:
        raise InvalidOption(
            "there is no `mask`, and the image has no alpha channel to use as one; send a mask", code="no_alpha"
        )


def split_own_alpha(data: bytes, header: Header, max_pixels: int) -> tuple[bytes, bytes]:
    """Return the picture without its alpha, as PNG, and the file itself, as the mask.

    With the alpha, the fill would stay transparent.

    Raises:
        InvalidImage, InvalidOption: the file is broken, or has no alpha.
    """
    check_alpha(header)
    picture = codec.decode(data, max_pixels=max_pixels, header=header)
    return codec.encode(Picture(picture.pixels, None, picture.icc), "png", 90), data
