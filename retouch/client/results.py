"""Results of calls: pictures with what the server says about them, the state of a job, models. All are frozen."""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from retouch.client.errors import SeveralPictures

if TYPE_CHECKING:
    from PIL.Image import Image

JobStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Picture:
    """One encoded picture."""

    bytes: builtins.bytes = field(repr=False)
    """The file, as the server encoded it."""
    media_type: str
    """image/png, image/jpeg or image/webp."""
    url: str | None = None
    """Path of the stored result on the server; None if it was not saved."""

    @property
    def image(self) -> Image:
        """The picture as a PIL image; needs Pillow, which the client does not install."""
        from PIL import Image  # noqa: PLC0415 -- the client needs Pillow only for this

        return Image.open(io.BytesIO(self.bytes))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file and return its path; `format` of the call decides its format, not the suffix.

        Raises:
            OSError: it cannot be written.
        """
        written = Path(path)
        written.write_bytes(self.bytes)
        return written


@dataclass(frozen=True, slots=True)
class Result:
    """The pictures of one call; `bytes`, `image`, `save` and `url` are those of the only picture."""

    pictures: tuple[Picture, ...]
    """One for each sample, in the order of their index."""
    model: str
    """`name/version`."""
    engine: str
    """`engine/precision`."""
    seed: int | None
    """The seed that the random numbers were drawn from; None for models that draw none."""
    mask_coverage: float | None
    """Share of the pixels that were filled, 0 … 1; None without a mask."""
    batch_size: int
    """Number of samples in the batch that computed it."""
    timings_ms: Mapping[str, float]
    """Milliseconds by stage: memory, decode, preprocess, queue, infer, postprocess, encode."""
    request_id: str
    """Id of the request in the server's logs."""

    @property
    def picture(self) -> Picture:
        """The only picture.

        Raises:
            SeveralPictures: there are several.
        """
        if len(self.pictures) != 1:
            raise SeveralPictures(f"the result has {len(self.pictures)} pictures: take them from .pictures")
        return self.pictures[0]

    @property
    def bytes(self) -> builtins.bytes:
        """The encoded file of the only picture."""
        return self.picture.bytes

    @property
    def image(self) -> Image:
        """The only picture as a PIL image."""
        return self.picture.image

    @property
    def url(self) -> str | None:
        """Path of the only picture on the server; None if it was not saved."""
        return self.picture.url

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the only picture; see `Picture.save`."""
        return self.picture.save(path)


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job at the time of the reply."""

    id: str
    status: JobStatus
    created: str
    """Time of its creation, ISO 8601."""
    result_urls: tuple[str, ...]
    """Paths of its results, once it has succeeded."""
    problem: Mapping[str, Any] | None
    """The problem (RFC 9457) of a failed job."""
    webhook: Mapping[str, Any] | None
    """State of the delivery of its webhook; None without one."""

    @property
    def ended(self) -> bool:
        """Whether it has succeeded, failed or been cancelled."""
        return self.status not in {"queued", "running"}


@dataclass(frozen=True, slots=True)
class Model:
    """One model version of the server."""

    name: str
    version: int
    state: Literal["ready", "available", "refused"]
    reason: str | None
    """The reason why the server refuses to serve it."""
    engine: str | None
    """`engine/precision` that runs it."""
    manifest: Mapping[str, Any] | None
    takes: Mapping[str, Any] | None
    """Endpoint, file parts and text fields of its requests."""

    @property
    def reference(self) -> str:
        """`name/version`, the value of the option `model`."""
        return f"{self.name}/{self.version}"

    @property
    def task(self) -> str | None:
        """Its task: inpaint, translate or generate; None without a manifest."""
        return self.manifest["task"] if self.manifest else None


@dataclass(frozen=True, slots=True)
class StoredResult:
    """One entry of the list of stored results; `Retouch.result` fetches the picture."""

    id: str
    created: str
    """Time of its creation, RFC 3339."""
    status: Literal["saving", "saved"]
    """`saving`: not yet at its final place; `saved`: there. Both can be fetched."""
    model: str
    """`name/version`."""
    media_type: str | None
    bytes: int | None
    """Size of the file."""
    width: int | None
    height: int | None
    url: str
    """Path of the picture on the server."""


@dataclass(frozen=True, slots=True)
class ResultPage:
    """A page of the list of stored results; `next_cursor` leads to the next one and is None on the last."""

    results: tuple[StoredResult, ...]
    next_cursor: str | None
