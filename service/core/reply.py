"""The reply to a request for pictures, before it becomes an HTTP response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from service.core.call import Timings
from service.core.pictures import Size

CacheOutcome = Literal["hit", "miss", "coalesced"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One encoded picture of a reply."""

    body: bytes
    result_id: str | None
    """The id that it is stored under; None when it was not saved."""

    @property
    def url(self) -> str | None:
        """The path of the stored result; None when it was not saved."""
        return f"/v1/results/{self.result_id}" if self.result_id else None


@dataclass(frozen=True, slots=True)
class Reply:
    """The encoded pictures of one request, and what its headers and sidecars say about them."""

    pictures: tuple[Encoded, ...]
    """One for each sample asked for, in the order of their index."""
    media_type: str
    size: Size
    model: str
    engine: str
    batch_size: int
    coverage: float | None
    seed: int | None
    """The seed that the latents were drawn from; None for models without latents."""
    timings: Timings
    cache: CacheOutcome | None = None
    """Whether it came from the cache; None where the cache is off."""
