"""What clients send and get: the options of each call, and the JSON bodies of replies.

The OpenAPI document, the validation and the docs all come from these models.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engines.manifest import Manifest
from service.items import ImageFormat, MaskMode, Strategy

ModelRef = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}(/[1-9][0-9]{0,8})?$")]
DEFAULT_QUALITY = 90


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model: ModelRef | None = Field(None, description="`name` or `name/version`; the server's default otherwise")
    format: ImageFormat | None = Field(None, description="format of the reply; wins over `Accept`; png otherwise")
    quality: int = Field(DEFAULT_QUALITY, ge=1, le=100, description="of JPEG and WebP")
    save: bool | None = Field(None, description="store the result; the server's default otherwise")


class InpaintOptions(_Options):
    """Optional fields of POST /v1/inpaint."""

    mask_mode: MaskMode = Field(
        "white", description="which mask pixels are filled: white ≥ 128, black < 128, alpha = 0"
    )
    mask_resize: Literal["nearest"] | None = Field(
        None, description="scale a mask of another size instead of refusing it"
    )
    strategy: Strategy = Field(
        "auto", description="crop round the holes, send the whole picture, or decide by its size"
    )
    seed: int | None = Field(None, ge=0, lt=2**63, description="for models that draw from a latent")


class TranslateOptions(_Options):
    """Optional fields of POST /v1/translate."""


class ImageReply(BaseModel):
    """A result as JSON, for `Accept: application/json`."""

    model_config = ConfigDict(protected_namespaces=())

    request_id: str
    model: str
    engine: str
    batch_size: int
    mask_coverage: float | None = Field(description="share of the pixels that were filled; null for translate")
    timings_ms: dict[str, float]
    media_type: str
    width: int
    height: int
    image_base64: str
    result_url: str | None = Field(description="where the stored result is; null when it was not saved")


JobStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class JobReply(BaseModel):
    """The state of an asynchronous request."""

    id: str
    status: JobStatus
    created: str
    result_url: str | None = None
    problem: dict[str, Any] | None = Field(None, description="RFC 9457 problem of a failed job")


class ModelReply(BaseModel):
    """One model version of the repository."""

    state: Literal["ready", "available", "refused"]
    reason: str | None
    engine: str | None
    manifest: Manifest | None
    name: str
    version: int


class ModelsReply(BaseModel):
    """All model versions of the repository."""

    models: list[ModelReply]


class HealthReply(BaseModel):
    """Whether the server can work, and what it waits for otherwise."""

    status: Literal["ok", "unavailable"]
    reasons: list[str] = []


class Problem(BaseModel):
    """RFC 9457 problem details, with Retouch's own members."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    retryable: bool
