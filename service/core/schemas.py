"""Schemas of the API: the options of each call, and the JSON bodies of replies.

The OpenAPI document, the validation and the docs all come from these models.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from engines.manifest import MOST_SAMPLES, Manifest, Task
from service.core.batch_rows import Strategy
from service.core.errors import codes_by_status
from service.core.pictures import ImageFormat, MaskMode

MODEL_REF = r"^[a-z0-9][a-z0-9_-]{0,63}(/[1-9][0-9]{0,8})?$"
"""The form of a model's name, or of its name and version."""


def _checked_model_ref(text: str) -> str:
    if not re.fullmatch(MODEL_REF, text):
        raise ValueError("it is no name of a model; send NAME or NAME/VERSION, as photos/5")
    return text


ModelRef = Annotated[str, AfterValidator(_checked_model_ref), Field(json_schema_extra={"pattern": MODEL_REF})]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
_JOB_EVENTS = r"^(succeeded|failed|cancelled)(,(succeeded|failed|cancelled)){0,2}$"
"""The form of a list of job events, such as `succeeded,failed`."""


def _checked_job_events(text: str) -> str:
    if not re.fullmatch(_JOB_EVENTS, text):
        raise ValueError("it names no ends of jobs; send some of succeeded,failed,cancelled, without spaces")
    return text


JobEvents = Annotated[str, AfterValidator(_checked_job_events), Field(json_schema_extra={"pattern": _JOB_EVENTS})]
DEFAULT_QUALITY = 90
_SEED = Field(
    None,
    examples=[7],
    description="seed of the random numbers, for models that draw some: the same seed gives the same bytes; "
    "chosen at random, and reported, if left out",
)
_SAMPLES = Field(
    1,
    ge=1,
    le=MOST_SAMPLES,
    description="number of different results; above 1 only for models that draw random numbers",
)


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
    ADDED: ClassVar[tuple[str, ...]] = ()
    """Fields that earlier versions did not have: fingerprints and stored orders leave them out at their defaults."""

    model: ModelRef | None = Field(None, description="`name` or `name/version`; by default the server's")
    format: ImageFormat | None = Field(
        None, examples=["png"], description="format of the reply, before that of `Accept`; png by default"
    )
    quality: int = Field(DEFAULT_QUALITY, ge=1, le=100, description="quality of JPEG and WebP")
    save: bool | None = Field(None, examples=[True], description="store the result; by default as the server is set")
    webhook: str | None = Field(
        None,
        exclude=True,
        max_length=2048,
        examples=[""],
        description="for a job: an https:// URL that is called when the job ends",
    )
    webhook_events: JobEvents = Field(
        "succeeded,failed,cancelled",
        exclude=True,
        description="the ends of the job for which the webhook is called, separated by commas",
    )

    @property
    def added_at_default(self) -> set[str]:
        """The fields in `ADDED` that are at their defaults; an earlier version behaves the same without them."""
        return {name for name in self.ADDED if getattr(self, name) == type(self).model_fields[name].default}


class InpaintOptions(_Options):
    """Optional fields of POST /v1/inpaint."""

    ADDED = ("texture",)

    mask_mode: MaskMode = Field(
        "white", description="mask pixels to fill: white (128 and more), black (less than 128), alpha (alpha is 0)"
    )
    mask_resize: Literal["nearest"] | None = Field(
        None, examples=["nearest"], description="scale a mask of another size instead of refusing it"
    )
    strategy: Strategy = Field(
        "auto", description="crop around the holes, send the whole picture, or let the server choose"
    )
    texture: Literal["none", "copied"] = Field(
        "none", description="copied: give the fill texture from the known part of the picture, where the server can"
    )
    samples: int = _SAMPLES
    seed: Seed | None = _SEED

    @property
    def pictures(self) -> int:
        """The number of pictures that the request produces."""
        return self.samples


class TranslateOptions(_Options):
    """Optional fields of POST /v1/translate."""

    samples: int = _SAMPLES
    seed: Seed | None = _SEED

    @property
    def pictures(self) -> int:
        """The number of pictures that the request produces."""
        return self.samples


class GenerateOptions(_Options):
    """Optional fields of POST /v1/generate."""

    count: int = Field(1, ge=1, le=16, description="number of pictures")
    seed: Seed | None = _SEED

    @property
    def pictures(self) -> int:
        """The number of pictures that the request produces."""
        return self.count


Options = InpaintOptions | TranslateOptions | GenerateOptions
OPTIONS: dict[Task, type[Options]] = {
    "inpaint": InpaintOptions,
    "translate": TranslateOptions,
    "generate": GenerateOptions,
}
"""The fields of each task's endpoint, POST /v1/TASK."""


class _ResultFacts(BaseModel):
    """The facts that replies give about one or several results of a request."""

    model_config = ConfigDict(protected_namespaces=())

    request_id: str
    model: str
    engine: str
    batch_size: int
    mask_coverage: float | None = Field(description="share of the pixels that were filled; null without a mask")
    seed: int | None = Field(description="seed of the random numbers; null for models that draw none")
    timings_ms: dict[str, float]
    media_type: str
    width: int
    height: int


class EncodedImage(BaseModel):
    """One result."""

    image_base64: str
    result_url: str | None = Field(description="path of the stored result; null if it was not saved")


class ImageReply(_ResultFacts, EncodedImage):
    """A result as JSON, for `Accept: application/json`."""


class ImagesReply(_ResultFacts):
    """Several results as JSON, in the order of their index: the reply to `samples` or `count` over 1."""

    images: list[EncodedImage]


JobStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class WebhookReply(BaseModel):
    """The state of the delivery of a job's webhook."""

    state: Literal["pending", "delivered", "failed", "skipped"] = Field(
        description="pending: the job has not ended, or there will be another attempt; failed: given up; "
        "skipped: this end is not among `webhook_events`"
    )
    tries: int = Field(default=0, description="attempts so far")
    reason: str | None = Field(default=None, description="reason why the last attempt failed")


class JobReply(BaseModel):
    """The state of an asynchronous request."""

    id: str
    status: JobStatus
    created: str
    result_url: str | None = None
    result_urls: list[str] = Field([], description="paths of all results")
    problem: dict[str, Any] | None = Field(None, description="RFC 9457 problem of a failed job")
    webhook: WebhookReply | None = Field(None, description="state of the webhook; null if the job has none")


class Taken(BaseModel):
    """A part or a field of a request."""

    name: str
    required: bool
    description: str


class Takes(BaseModel):
    """The parts and fields of requests for a model."""

    endpoint: str = Field(description="path for `POST`, as multipart/form-data")
    parts: list[Taken] = Field(description="parts that are files")
    fields: list[Taken] = Field(description="text fields; all values and defaults are in the OpenAPI document")
    refused: str | None = Field(description="reason why requests are refused; null if they are not")


class ModelReply(BaseModel):
    """One model version of the repository."""

    state: Literal["ready", "available", "refused"]
    reason: str | None
    engine: str | None
    manifest: Manifest | None
    takes: Takes | None = Field(description="parts and fields of a request; null without a manifest")
    name: str
    version: int
    default: bool = Field(description="whether it answers requests of its task that name no model")


class ListedModel(BaseModel):
    """A model as OpenAI's clients read it."""

    id: str = Field(description="the name, without a version")
    object: Literal["model"] = "model"
    created: int = Field(0, description="always 0: a model's date is not known")
    owned_by: Literal["retouch"] = "retouch"


class ModelsReply(BaseModel):
    """All model versions of the repository, and the names of the models that can be used."""

    object: Literal["list"] = "list"
    data: list[ListedModel] = Field(description="models that are not refused, by name, as in OpenAI's API")
    models: list[ModelReply]


class NamedModelReply(ListedModel):
    """A model as OpenAI's clients read it, and its versions."""

    models: list[ModelReply] = Field(description="its versions, newest first, also those that are refused")


class HealthReply(BaseModel):
    """Whether the server can work, and the reasons if it cannot."""

    status: Literal["ok", "unavailable"]
    reasons: list[str] = []


def _enumerate_codes(schema: dict[str, Any]) -> None:
    schema["enum"] = sorted({*chain(*codes_by_status().values())})


class Problem(BaseModel):
    """RFC 9457 problem details, with Retouch's own members."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str = Field(description="stable name of the problem, for programs", json_schema_extra=_enumerate_codes)
    request_id: str
    retryable: bool
