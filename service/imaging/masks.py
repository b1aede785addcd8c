"""Checks of a mask before anything is computed: as large as its image, and neither empty nor full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import cv2
import numpy as np

from service.core.errors import InvalidOption, SizesDiffer
from service.core.pictures import Bool2D, Brightness, MaskMode, Size


def fit_mask(mask: Bool2D, size: Size, mask_resize: Literal["nearest"] | None) -> Bool2D:
    """The mask at the image's size.

    Raises:
        SizesDiffer: the mask has another size, and `mask_resize` does not allow scaling it.
    """
    have = Size(*mask.shape)
    if have == size:
        return mask
    if mask_resize is None:
        advice = "send equal sizes, or mask_resize=nearest"
        raise SizesDiffer(f"the image is {size} and the mask {have}", advice=advice, field="mask")
    scaled = cv2.resize(mask.view(np.uint8), (size.width, size.height), interpolation=cv2.INTER_NEAREST)
    return scaled.astype(np.bool_)


def measure_coverage(mask: Bool2D, mode: MaskMode, measure: Callable[[], Brightness]) -> float:
    """The share of pixels to fill, in (0, 1).

    Args:
        mask: H×W, True = fill.
        mode: how it was read.
        measure: measures the brightness of the mask's file; called only to explain a refusal.

    Raises:
        InvalidOption: code `mask_empty` or `mask_full`; most often the mask is inverted, or has the values 0 and 1.
    """
    filled = int(np.count_nonzero(mask))
    if filled == 0:
        reason, advice = _explain(mode, measure)
        raise InvalidOption(
            f"the mask selects no pixel to fill{reason}", code="mask_empty", advice=advice, field="mask"
        )
    if filled == mask.size:
        reason, advice = _explain(mode, measure)
        what = "the mask selects every pixel, which leaves nothing to fill from"
        raise InvalidOption(f"{what}{reason}", code="mask_full", advice=advice, field="mask")
    return filled / mask.size


def _explain(mode: MaskMode, measure: Callable[[], Brightness]) -> tuple[str, str]:
    """Return the reason why a mask selects nothing or everything, and advice on `mask_mode`; one of them is empty.

    A mask whose values are all dark, such as 0 and 1, selects nothing with `white` and everything with `black`; the
    client must scale it to 0 and 255.
    """
    if mode != "alpha":
        values = measure()
        if values.darkest < values.brightest < values.half:
            fix = f"multiply it by {values.maximum:,}" if values.brightest == 1 else f"write them as {values.maximum:,}"
            bright = "holes" if mode == "white" else "what is kept"
            reason = f"its brightest value is {values.brightest:,} of {values.maximum:,}, and {bright} must be at least"
            return f"; {reason} {values.half:,}; {fix}", ""
    return "", f"mask_mode={mode} was applied; check the mask and mask_mode"
