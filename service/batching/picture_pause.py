"""Pauses in which no picture is offered to a GPU that refused several in a row.

Each refused picture has cost a check and a plan before the CPU decodes it.

Used on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from service.batching.backend import PictureFiller, PictureRefused, SubmitOptions
from service.core.batch_rows import ComputedSample
from service.core.picture_work import PictureWork

log = structlog.get_logger(__name__)

REFUSALS, PAUSE_S = 20, 10.0
"""After so many refusals in a row no picture is handed over for so long."""


class PausingPictures:
    """Hands pictures on, as `PictureFiller`, except in pauses.

    Args:
        filler: computes them.
        clock: seconds.
    """

    def __init__(self, filler: PictureFiller, clock: Callable[[], float]) -> None:
        self._filler = filler
        self._clock = clock
        self._refusals = 0
        self._until = float("-inf")

    @property
    def works(self) -> bool:
        """Whether pictures may be handed over now."""
        return self._clock() >= self._until and self._filler.works

    async def fill(self, work: PictureWork, model: Any, options: SubmitOptions) -> ComputedSample:
        """Compute a picture, as `PictureFiller`."""
        try:
            done = await self._filler.fill(work, model, options)
        except PictureRefused as refused:
            self._refusals += 1
            if self._refusals >= REFUSALS:
                self._refusals, self._until = 0, self._clock() + PAUSE_S
                log.warning("no picture is handed to the GPU for a while", pause_s=PAUSE_S, reason=str(refused))
            raise
        self._refusals = 0
        return done
