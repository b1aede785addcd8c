"""What a mask must be before anything is computed: as large as its image, and neither empty nor full."""

from __future__ import annotations

from typing import Literal

import cv2
import numpy as np

from service.errors import InvalidOption, SizesDiffer
from service.items import Bool2D, MaskMode, Size


def fit_mask(mask: Bool2D, size: Size, mask_resize: Literal["nearest"] | None) -> Bool2D:
    """The mask at the image's size.

    Raises:
        SizesDiffer: it has another size, and `mask_resize` does not allow scaling it.
    """
    have = Size(*mask.shape)
    if have == size:
        return mask
    if mask_resize is None:
        raise SizesDiffer(f"the image is {size} and the mask {have}; send equal sizes, or mask_resize=nearest")
    scaled = cv2.resize(mask.view(np.uint8), (size.width, size.height), interpolation=cv2.INTER_NEAREST)
    return scaled.astype(np.bool_)


def measure_coverage(mask: Bool2D, mode: MaskMode) -> float:
    """The share of pixels to fill, in (0, 1).

    Raises:
        InvalidOption: `mask_empty` or `mask_full`: most often a mask of the other polarity.
    """
    filled = int(np.count_nonzero(mask))
    if filled == 0:
        raise InvalidOption(
            f"with mask_mode={mode} the mask selects no pixel to fill; is another mask_mode meant?", code="mask_empty"
        )
    if filled == mask.size:
        raise InvalidOption(
            f"with mask_mode={mode} the mask selects every pixel, which leaves nothing to fill from; "
            "is another mask_mode meant?",
            code="mask_full",
        )
    return filled / mask.size
