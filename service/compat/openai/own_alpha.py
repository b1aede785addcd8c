"""Makes a picture opaque whose transparent part is to be filled."""

from __future__ import annotations

from service.core.pictures import Picture
from service.imaging.files import codec
from service.imaging.files.header import Header


def without_alpha(data: bytes, header: Header, max_pixels: int) -> bytes:
    """Return a picture without its alpha, with which its fill would stay transparent, as PNG.

    Raises:
        InvalidImage: the file is broken.
    """
    picture = codec.decode(data, max_pixels=max_pixels, header=header)
    return codec.encode(Picture(picture.pixels, None, picture.icc), "png", 90)
