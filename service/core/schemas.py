"""Schemas of the API: the options of each call, and the JSON bodies of replies.

The OpenAPI document, the validation and the docs all come from these models.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from engines.manifest import MAX_SAMPLES, Manifest, Task
from service.core.batch_rows import Strategy
from service.core.errors import codes_by_status
from service.core.pictures import ImageFormat, MaskMode

MODEL_REF = r"^[a-z0-9][a-z0-9_-]{0,63}(/[1-9][0-9]{0,8})?$"
"""The form of a model's name, or of its name and version."""


def _check_model_ref(text: str) -> str:
    if not re.fullmatch(MODEL_REF, text):
        raise ValueError("it is not a model name; send NAME or NAME/VERSION, such as photos/5")
    return text


ModelRef = Annotated[str, AfterValidator(_check_model_ref), Field(json_schema_extra={"pattern": MODEL_REF})]
MAX_SEED = 2**63 - 1
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
_JOB_EVENTS = r"^(succeeded|failed|cancelled)(,(succeeded|failed|cancelled)){0,2}$"
"""The form of a list of job events, such as `succeeded,failed`."""


def _check_job_events(text: str) -> str:
    if not re.fullmatch(_JOB_EVENTS, text):
        raise ValueError("it is not a list of job events; send some of succeeded,failed,cancelled, without spaces")
    return text


JobEvents = Annotated[str, AfterValidator(_check_job_events), Field(json_schema_extra={"pattern": _JOB_EVENTS})]
DEFAULT_QUALITY = 90
_SEED = Field(
    None,
    examples=[7],
    description="Seed of the random numbers, for models that draw some: the same seed gives the same result. By "
    "default the server chooses one, which the reply names.",
)
_SAMPLES = Field(
    1,
    ge=1,
    le=MAX_SAMPLES,
    description="Number of different results. Models that draw random numbers draw new ones for each; others fill the "
    "picture as it is, mirrored and turned, and translate it once only.",
)


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
    ADDED: ClassVar[tuple[str, ...]] = ()
    """Fields that earlier versions did not have: fingerprints and stored orders leave them out at their defaults."""

    model: ModelRef | None = Field(
        None, description="Model as `name` or `name/version`. By default the server's for this task."
    )
    format: ImageFormat | None = Field(
        None, examples=["png"], description="Format of the result. By default that of `Accept`, otherwise png."
    )
    quality: int = Field(DEFAULT_QUALITY, ge=1, le=100, description="Quality of a JPEG or WebP result, 1 to 100.")
    save: bool | None = Field(
        None, examples=[True], description="Whether to store the result. By default as the server is configured."
    )
    webhook: str | None = Field(
        None,
        exclude=True,
        max_length=2048,
        examples=[""],
        description="For a job: an https:// address to which the server sends a signed POST when the job ends.",
    )
    webhook_events: JobEvents = Field(
        "succeeded,failed,cancelled",
        exclude=True,
        description="For a job: the final states that are sent to `webhook`, separated by commas.",
    )

    @property
    def added_at_default(self) -> set[str]:
        """The fields in `ADDED` that are at their defaults; an earlier version behaves the same without them."""
        return {name for name in self.ADDED if getattr(self, name) == type(self).model_fields[name].default}


class InpaintOptions(_Options):
    """Optional fields of POST /v1/inpaint."""

    ADDED = ("texture",)

    mask_mode: MaskMode = Field(
        "white",
        description="Mask pixels that are filled: `white` (128 and more), `black` (below 128), `alpha` (alpha is 0).",
    )
    mask_resize: Literal["nearest"] | None = Field(
        None,
        examples=["nearest"],
        description="`nearest`: scale a mask of another size to the image. By default such a mask is refused.",
    )
    strategy: Strategy = Field(
        "auto",
        description="What the model sees: `crop`: crops around the holes. `whole`: the picture, scaled down if it is "
        "large. `auto`: the better of the two for this model, picture and mask.",
    )
    texture: Literal["none", "copied"] = Field(
        "none",
        description="`copied`: copy texture from the rest of the picture, which makes the fill sharper and is slower.",
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

    count: int = Field(1, ge=1, le=16, description="Number of pictures, 1 to 16.")
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

    request_id: str = Field(description="Id of the request, as in `X-Request-ID`.")
    model: str = Field(description="Model that computed it, as `name/version`.")
    engine: str = Field(description="Runtime and precision, as `engine/precision`.")
    batch_size: int = Field(description="Number of samples that were computed together, this one included.")
    mask_coverage: float | None = Field(description="Fraction of the pixels that were filled; null without a mask.")
    seed: int | None = Field(description="Seed of the random numbers; null for models that draw none.")
    timings_ms: dict[str, float] = Field(description="Milliseconds of each stage, as in `Server-Timing`.")
    media_type: str = Field(description="Media type of the pictures, such as `image/png`.")
    width: int = Field(description="Width of the pictures in pixels.")
    height: int = Field(description="Height of the pictures in pixels.")


class EncodedImage(BaseModel):
    """One picture, and where it is stored."""

    image_base64: str = Field(description="The picture's file in base64.")
    result_url: str | None = Field(description="Path of the stored result; null if it was not stored.")


class ImageReply(_ResultFacts, EncodedImage):
    """One picture as JSON, for requests with `Accept: application/json`."""


class ImagesReply(_ResultFacts):
    """Several pictures as JSON: the reply to requests with `samples` or `count` above 1."""

    images: list[EncodedImage] = Field(description="The pictures, in the order in which they were drawn.")


JobStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class WebhookReply(BaseModel):
    """The state of the delivery of a job's webhook."""

    state: Literal["pending", "delivered", "failed", "skipped"] = Field(
        description="`pending`: the job has not ended, or there will be another attempt. `delivered`: the receiver "
        "accepted it. `failed`: given up. `skipped`: the job's final state is not among `webhook_events`."
    )
    tries: int = Field(default=0, description="Number of attempts so far.")
    reason: str | None = Field(default=None, description="Why the last attempt failed; null if none has failed.")


class JobReply(BaseModel):
    """The state of a job: a request that was sent with `Prefer: respond-async`."""

    id: str = Field(description="Id of the job, 32 hexadecimal digits. Keep it secret.")
    status: JobStatus = Field(description="`queued` and `running` jobs can still change; the others are final states.")
    created: str = Field(description="Time at which the job was accepted (RFC 3339).")
    result_url: str | None = Field(None, description="Path of the first result; null until the job has succeeded.")
    result_urls: list[str] = Field([], description="Paths of all results; empty until the job has succeeded.")
    problem: dict[str, Any] | None = Field(
        None, description="Why the job failed, as a problem (RFC 9457); null unless it has failed."
    )
    webhook: WebhookReply | None = Field(None, description="Delivery of the webhook; null if the job has none.")


class Taken(BaseModel):
    """A file part or a text field of a request."""

    name: str = Field(description="Name of the part or field in the form.")
    required: bool = Field(description="Whether every request must have it.")
    description: str = Field(description="What it may contain.")


class Takes(BaseModel):
    """The files and fields that a request for a model may contain."""

    endpoint: str = Field(description="Path to which such a request is posted, as multipart/form-data.")
    parts: list[Taken] = Field(description="File parts.")
    fields: list[Taken] = Field(description="Text fields; their values and defaults are in this document, at the call.")
    refused: str | None = Field(description="Why the server refuses requests for this model; null if it does not.")


class ModelReply(BaseModel):
    """One version of a model."""

    state: Literal["ready", "available", "refused"] = Field(
        description="`ready`: loaded. `available`: loaded when a request names it. `refused`: it cannot be used."
    )
    reason: str | None = Field(description="Why the version is refused; null otherwise.")
    engine: str | None = Field(description="Runtime and precision, as `engine/precision`; null if it is not loaded.")
    manifest: Manifest | None = Field(description="Content of its manifest.json; null if it cannot be read.")
    takes: Takes | None = Field(description="What a request may contain; null without a manifest.")
    name: str = Field(description="Name of the model.")
    version: int = Field(description="Number of the version; a higher one is newer.")
    default: bool = Field(description="Whether it answers the requests of its task that name no model.")


class ListedModel(BaseModel):
    """A model, with the fields that clients of OpenAI's API read."""

    id: str = Field(description="Name of the model, without a version.")
    object: Literal["model"] = Field("model", description="Always `model`.")
    created: int = Field(0, description="Always 0: the date of a model is not known.")
    owned_by: Literal["retouch"] = Field("retouch", description="Always `retouch`.")


class ModelsReply(BaseModel):
    """All versions of all models, and, as in OpenAI's API, the names of the models that can be used."""

    object: Literal["list"] = Field("list", description="Always `list`.")
    data: list[ListedModel] = Field(description="Models with a version that can be used, by name.")
    models: list[ModelReply] = Field(
        description="Every version, by name and newest first, also those that are refused."
    )


class NamedModelReply(ListedModel):
    """A model and its versions."""

    models: list[ModelReply] = Field(description="Its versions, newest first, also those that are refused.")


class HealthReply(BaseModel):
    """The health of the server."""

    status: Literal["ok", "unavailable"] = Field(description="`ok` with status 200, `unavailable` with 503.")
    reasons: list[str] = Field([], description="Why the server is unavailable; empty if it is not.")


def _enumerate_codes(schema: dict[str, Any]) -> None:
    schema["enum"] = sorted({*chain(*codes_by_status().values())})


class Problem(BaseModel):
    """An error: problem details (RFC 9457) with further members; where OpenAI's clients ask, too, also with `error`."""

    type: str = Field(description="URN of the kind of problem: `urn:retouch:problem:CODE`.")
    title: str = Field(description="Name of the kind of problem, for people.")
    status: int = Field(description="HTTP status of the reply.")
    detail: str = Field(description="What is wrong and what to do, for people. The text may change.")
    instance: str = Field(description="Path of the request.")
    code: str = Field(
        description="Name of the kind of problem, for programs. It does not change.", json_schema_extra=_enumerate_codes
    )
    request_id: str = Field(description="Id of the request, as in `X-Request-ID`, to find it in the server's log.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
