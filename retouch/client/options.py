"""Options of the calls, as keyword arguments. An option that is left out takes the server's default."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypedDict
from uuid import UUID

from retouch.client.sources import Source

Task = Literal["inpaint", "translate", "generate"]
Priority = Literal["low", "normal", "high", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


class PictureOptions(TypedDict, total=False):
    """Options of every call for pictures."""

    model: str
    """`name` or `name/version`."""
    format: Literal["png", "jpeg", "webp"]
    """Format of the result."""
    quality: int
    """1 … 100, for JPEG and WebP."""
    save: bool
    """Whether the server stores the result."""
    deadline_s: float
    """Seconds that the server may take; work that cannot meet it is not begun (DeadlineExceeded, not retried)."""
    priority: Priority
    """Priority in the queue; 9 is the highest."""
    request_id: str
    """Id in the server's logs: 1 to 128 characters of A-Za-z0-9._:-; without it the server makes one."""
    idempotency_key: str | UUID | None
    """1 to 255 characters; without it the client makes one for each call, unless `save` is False. None sends none."""
    webhook: str
    """An https:// URL that is called when the job ends; for `submit` alone."""
    webhook_events: str
    """The outcomes of a job that call the webhook, from `succeeded,failed,cancelled`; for `submit` alone."""


class InpaintOptions(PictureOptions, total=False):
    """Options of `inpaint`."""

    mask_mode: Literal["white", "black", "alpha"]
    """Pixels of the mask that are filled: white (128 and above), black, or those of alpha 0."""
    mask_resize: Literal["nearest"]
    """Scale a mask of another size instead of refusing it."""
    strategy: Literal["auto", "crop", "whole"]
    """Crop around the holes, compute the whole picture, or decide by its size."""
    texture: Literal["none", "copied"]
    """copied: give the fill texture from the known part of the picture, where the server can; slower."""
    samples: int
    """1 … 8 different results, of models that draw random numbers."""
    seed: int
    """0 … 2⁶³−1: the same gives the same picture."""


class TranslateOptions(PictureOptions, total=False):
    """Options of `translate`."""

    instance: Source
    """A PNG of instance ids, for models that take them."""
    reference: Source
    """A picture whose style the result takes on, for models that take one."""
    samples: int
    """1 … 8 different results, of models that draw random numbers."""
    seed: int
    """0 … 2⁶³−1: the same gives the same picture."""


class GenerateOptions(PictureOptions, total=False):
    """Options of `generate`."""

    count: int
    """1 … 16 pictures."""
    seed: int
    """0 … 2⁶³−1: the same gives the same pictures."""


class ResultFilter(TypedDict, total=False):
    """Options of `results`: which stored results are listed."""

    model: str
    """`name` or `name/version`."""
    created_from: datetime
    """Earliest time of creation; a time without a zone is local time."""
    created_before: datetime
    """Time before which the results were created."""
    status: Literal["saving", "saved"]
    """`saving`: promised, and not yet at its final place; `saved`: there. Both can be fetched."""
    limit: int
    """Results per request to the server, 1 … 100, 50 by default; all results are listed in any case."""
