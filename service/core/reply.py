"""The reply to a request for pictures, before it becomes an HTTP response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from service.core.call import Timings
from service.core.pictures import Size

CacheOutcome = Literal["hit", "miss", "coalesced", "bypass"]
"""Outcome of a look-up in the result cache; `bypass`: there was none, as the reply is unsaved or is drawn anew."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """One encoded picture of a reply."""

    body: bytes
    result_id: str | None
    """The id that the picture is stored under; None if it was not saved."""

    @property
    def url(self) -> str | None:
        """The path of the stored result; None if it was not saved."""
        return f"/v1/results/{self.result_id}" if self.result_id else None


@dataclass(frozen=True, slots=True)
class Reply:
    """The encoded pictures of one request, and the facts for their headers and sidecars."""

    pictures: tuple[Encoded, ...]
    """The pictures, one for each requested sample, in the order of their index."""
    media_type: str
    size: Size
    model: str
    engine: str
    batch_size: int
    coverage: float | None
    seed: int | None
    """The seed of the latents; None for models without latents."""
    timings: Timings
    texture: Literal["copied", "none"] | None = None
    """Whether the fill got texture: `none` if too little of the picture was known; None if it was not requested."""
    cache: CacheOutcome | None = None
    """Outcome of the look-up; None if the cache is off."""

    @property
    def nbytes(self) -> int:
        """Number of bytes of all its pictures."""
        return sum(len(picture.body) for picture in self.pictures)
