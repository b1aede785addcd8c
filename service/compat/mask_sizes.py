"""Advice on a mask of another size, for the APIs that have no field to have it scaled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service.core.errors import SizesDiffer


@contextmanager
def masks_never_resized() -> Iterator[None]:
    """Advise the caller to scale the mask, in place of the field `mask_resize`, which the API does not take.

    Raises:
        SizesDiffer: the block raised it.
    """
    try:
        yield
    except SizesDiffer as error:
        raise SizesDiffer(error.sizes, "scale the mask to the size of the image before sending it") from error
