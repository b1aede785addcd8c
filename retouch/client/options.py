"""Options of the calls, as keyword arguments. An option that is left out takes the server's default."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypedDict
from uuid import UUID

from retouch.client.sources import Source

Task = Literal["inpaint", "translate", "generate"]
Priority = Literal["low", "normal", "high", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


class PictureOptions(TypedDict, total=False):
    """Options of every call for pictures.

    model: `name` or `name/version`.
    format: Format of the result.
    quality: 1 … 100, for JPEG and WebP.
    save: Whether the server stores the result.
    deadline_s: Seconds that the server may take; work that cannot meet it is not begun (DeadlineExceeded, not retried).
    priority: Priority in the queue; 9 is the highest.
    request_id: Id in the server's logs: 1 to 128 characters of A-Za-z0-9._:-; without it the server makes one.
    idempotency_key: 1 to 255 characters; without it the client makes one for each call, unless `save` is False. None
        sends none.
    webhook: An https:// URL that is called when the job ends; for `submit` alone.
    webhook_events: The outcomes of a job that call the webhook, from `succeeded,failed,cancelled`; for `submit` alone.
    """

    model: str
    format: Literal["png", "jpeg", "webp"]
    quality: int
    save: bool
    deadline_s: float
    priority: Priority
    request_id: str
    idempotency_key: str | UUID | None
    webhook: str
    webhook_events: str


class InpaintOptions(PictureOptions, total=False):
    """Options of `inpaint`, besides those of `PictureOptions`.

    mask_mode: Pixels of the mask that are filled: white (128 and above), black, or those of alpha 0.
    mask_resize: Scale a mask of another size instead of refusing it.
    strategy: Crop around the holes, compute the whole picture, or decide by its size.
    texture: `copied` gives the fill texture from the known part of the picture, where the server can; slower.
    samples: 1 … 8 different results.
    seed: 0 … 2⁶³−1: the same gives the same picture. Ignored by models that draw no random numbers.
    """

    mask_mode: Literal["white", "black", "alpha"]
    mask_resize: Literal["nearest"]
    strategy: Literal["auto", "crop", "whole"]
    texture: Literal["none", "copied"]
    samples: int
    seed: int


class TranslateOptions(PictureOptions, total=False):
    """Options of `translate`, besides those of `PictureOptions`.

    instance: A PNG of instance ids, for models that take them.
    reference: A picture whose style the result takes on, for models that take one.
    samples: 1 … 8 different results, of models that draw random numbers.
    seed: 0 … 2⁶³−1: the same gives the same picture.
    """

    instance: Source
    reference: Source
    samples: int
    seed: int


class GenerateOptions(PictureOptions, total=False):
    """Options of `generate`, besides those of `PictureOptions`.

    count: 1 … 16 pictures.
    seed: 0 … 2⁶³−1: the same gives the same pictures.
    """

    count: int
    seed: int


class ResultFilter(TypedDict, total=False):
    """Options of `results`: which stored results are listed.

    model: `name` or `name/version`.
    created_from: Earliest time of creation; a time without a zone is local time.
    created_before: Time before which the results were created.
    status: `saving`: promised, and not yet at its final place; `saved`: there. Both can be fetched.
    limit: Results per request to the server, 1 … 100, 50 by default; all results are listed in any case.
    """

    model: str
    created_from: datetime
    created_before: datetime
    status: Literal["saving", "saved"]
    limit: int
