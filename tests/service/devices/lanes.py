"""A device with two lanes, and the clock that times its batches."""

from __future__ import annotations

import numpy as np

from service.core.batch_rows import Sample
from service.core.pictures import Size


def samples(*values: int) -> list[Sample]:
    return [Sample(Size(64, 64), {"image": np.full((64, 64, 3), value, np.uint8)}) for value in values]
