from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.batching.backend import PictureRefused, SubmitOptions
from service.batching.picture_pause import PAUSE_S, REFUSALS, PausingPictures
from service.core.batch_rows import ComputedSample
from tests.fakes.clock import Clock

WORK: Any = None
"""Handed on as it is."""


class Filler:
    """Refuses pictures while it is told to."""

    works = True

    def __init__(self) -> None:
        self.refuses = True

    async def fill(self, work: Any, model: Any, options: SubmitOptions) -> ComputedSample:
        if self.refuses:
            raise PictureRefused("nvjpegDecodeBatched: status 3")
        return ComputedSample(np.zeros((1, 1, 3), np.uint8), 1, 0.0, 0.0, 0.0)


async def refused(pictures: PausingPictures, times: int) -> None:
    for _ in range(times):
        with pytest.raises(PictureRefused):
            await pictures.fill(WORK, None, SubmitOptions(0.0))


async def test_a_gpu_that_refuses_one_picture_after_another_is_left_alone_for_a_while() -> None:
    clock = Clock()
    pictures = PausingPictures(Filler(), clock)
    await refused(pictures, REFUSALS - 1)
    assert pictures.works
    await refused(pictures, 1)
    assert not pictures.works
    clock.now += PAUSE_S
    assert pictures.works


async def test_a_picture_that_is_computed_begins_the_count_anew() -> None:
    filler = Filler()
    pictures = PausingPictures(filler, Clock())
    await refused(pictures, REFUSALS - 1)
    filler.refuses = False
    await pictures.fill(WORK, None, SubmitOptions(0.0))
    filler.refuses = True
    await refused(pictures, REFUSALS - 1)
    assert pictures.works
