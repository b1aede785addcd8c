"""Texts of the OpenAPI document, in Markdown: its introduction, tags, parameters, headers and errors."""

from __future__ import annotations

from typing import Any

from service.core.flow import MAX_PRIORITY, PRIORITY_NAMES

INTRODUCTION = (
    "Retouch serves trained image-to-image generators. Send a picture and get a picture back: `POST /v1/inpaint` "
    "fills holes, `POST /v1/translate` turns one kind of image into another, `POST /v1/generate` makes pictures "
    "from random numbers.\n\n"
    "```sh\n"
    "curl -F image=@photo.jpg -F mask=@mask.png http://127.0.0.1:8000/v1/inpaint -o filled.png\n"
    "```\n\n"
    "**Authentication.** A server with API keys requires one in every request, as `Authorization: Bearer KEY` or "
    "`X-API-Key: KEY`. `/livez`, `/readyz`, this documentation and signed links need none.\n\n"
    "**Synchronous or as a job.** The reply to a picture request is the picture. With `Prefer: respond-async` it "
    "is 202 and the address of a job, which you poll with `GET /v1/jobs/{job_id}` or follow by a webhook.\n\n"
    "**Stored results.** Results are stored unless the request has `save=false`. `Location` is the address of the "
    "stored result.\n\n"
    "**Errors** are `application/problem+json` (RFC 9457). Programs should decide by `code`, which does not "
    "change; `detail` tells a person what is wrong and what to do. If `retryable` is true, send the same request "
    "again, after `Retry-After` seconds if the reply has that header.\n\n"
    "**Repeating safely.** With an `Idempotency-Key` a repeated request gets the first answer again and is not "
    "computed twice.\n\n"
    "Calls under the name of another server, such as `openai`, implement that server's API and have its error "
    "format."
)
"""Paragraphs are single lines, because Swagger UI keeps the ends of lines."""
TAGS = [
    {"name": "pictures", "description": "Fill, translate or generate pictures."},
    {"name": "jobs", "description": "Poll or cancel requests that were sent with `Prefer: respond-async`."},
    {"name": "results", "description": "Fetch, list and delete stored results."},
    {"name": "models", "description": "Which models the server has, and what a request to each of them may contain."},
    {"name": "operations", "description": "Health checks and metrics, for operators."},
]
COMMON_HEADERS = {
    "X-Request-ID": "Id of the request: the one that it was sent with, or a new one. The server's log has it too.",
    "traceparent": "W3C Trace Context; only if the server traces the request.",
}
"""Headers of every reply, except those for browsers, which docs/security.md lists."""
PICTURE_HEADERS = {
    "X-Model": "The model and its version, such as `photos/5`.",
    "X-Engine": "The runtime and the precision that computed it, such as `openvino/bf16`.",
    "X-Batch-Size": "Number of samples that were computed together with it, this one included.",
    "X-Mask-Coverage": "Fraction of the picture that was filled, 0 to 1. Only for inpainting.",
    "X-Seed": "Seed of the random numbers: send it as `seed` to get the same result. Only for models that draw them.",
    "X-Texture": "With `texture=copied`: `copied`, or `none` if too little of the picture is known to copy from.",
    "Server-Timing": (
        "Milliseconds that each stage took: memory, decode, preprocess, queue, infer, postprocess, texture, encode."
    ),
    "Location": "Path of the stored result. Missing if it was not stored, and if there are several results.",
    "Vary": "`Accept`: the same path gives a picture or JSON.",
    "Cache-Status": "Whether the result came from the server's result cache (RFC 9211). Only if it has one.",
    "Idempotency-Replayed": "`true` if this is the answer to an earlier request with the same `Idempotency-Key`.",
}
JOB_HEADERS = {
    "Location": "Path of the job, to poll.",
    "Preference-Applied": "`respond-async`",
    "Idempotency-Replayed": PICTURE_HEADERS["Idempotency-Replayed"],
}
RESULT_HEADERS = {
    "Accept-Ranges": "`bytes`: an image can be fetched in ranges.",
    "ETag": "Identifies the image, or its JSON description. A result never changes.",
    "Cache-Control": "`private`: the client may keep the result, shared caches may not.",
    "Vary": "`Accept`: the same path gives an image or JSON.",
}
RETRY_HEADERS = {"Retry-After": "Whole seconds after which to send the request again."}
PROBLEM_HEADERS = {
    401: {"WWW-Authenticate": "`Bearer`"},
    405: {"Allow": "Methods of this path, separated by commas."},
    416: {"Content-Range": "`bytes */SIZE`: the size of the file in bytes."},
}
_TEXT = {"type": "string"}


def _header_parameter(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "schema": schema, "description": description}


PICTURE_PARAMETERS = [
    _header_parameter(
        "X-Request-Timeout-Ms",
        {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400_000},
        "Deadline in milliseconds after the request has arrived, at most a day. A request that cannot meet it gets 504,"
        " if possible before it is computed. By default the server's limit, usually 60 seconds.",
    ),
    _header_parameter(
        "X-Request-ID",
        {**_TEXT, "pattern": "^[A-Za-z0-9._:-]{1,128}$"},
        "Your id for the request, for logs on both sides. By default the server makes one. Send the id of a 503 again "
        "when you repeat the request: it is then admitted before new ones.",
    ),
    _header_parameter(
        "X-Priority",
        {**_TEXT, "enum": [*PRIORITY_NAMES, *map(str, range(MAX_PRIORITY + 1))]},
        "Priority in the queue: `low` (2), `normal` (5, the default), `high` (8), or a number from 0 (last) to 9 "
        "(first). Each level gets twice the share of the level below.",
    ),
    _header_parameter(
        "Prefer",
        {**_TEXT, "enum": ["respond-async"]},
        "`respond-async`: reply at once with 202 and the address of a job, and compute the picture later.",
    ),
    _header_parameter(
        "Idempotency-Key",
        {**_TEXT, "pattern": "^[A-Za-z0-9._:-]{1,255}$"},
        "A name that you choose for this request, for instance a UUID. If you send the same request with the same key "
        "again within a day, you get the first answer again. Another request with the same key gets 422.",
    ),
    _header_parameter(
        "traceparent", _TEXT, "W3C Trace Context: the trace that the request belongs to, if the server traces requests."
    ),
]
IF_NONE_MATCH = _header_parameter(
    "If-None-Match", _TEXT, "`ETag` of the copy that you have. If it is still current, the reply is 304 without a body."
)
RANGE_PARAMETERS = [
    _header_parameter("Range", _TEXT, "One range of the image's bytes, such as `bytes=0-1023`; the reply is 206."),
    _header_parameter("If-Range", _TEXT, "An `ETag`: `Range` is ignored if the image has another one."),
]
FILE_PARTS = {
    "image": "The picture: JPEG, PNG or WebP. For models that take class ids, a grey or palette PNG of ids.",
    "mask": "The mask: JPEG, PNG or WebP of the size of `image`.",
    "instance": "Instance ids: a grey or palette PNG of the size of `image`. Only for models that take them.",
    "reference": "A picture of the size of `image` whose style the result takes over. Only for models that take it.",
}
"""Files of a form, by the name of their part."""
PROBLEMS = {
    400: "The body is not what this call expects, or a file in it is not an image that can be decoded.",
    401: "The server requires an API key, and the request has none that is valid. Nothing else was checked.",
    403: (
        "The request is not allowed: the key lacks the scope, a page of another origin sent it, or the link "
        "is not valid."
    ),
    404: "There is no such path, result, job or model.",
    405: "The path exists, but not with this method. `Allow` lists its methods.",
    408: "The body did not arrive in time.",
    409: "An earlier request with this `Idempotency-Key` is still being answered. Send the request again later.",
    410: "The result was deleted.",
    413: "The body or the image is larger than the server allows.",
    415: (
        "The body or a file has a type that the server does not read. Send multipart/form-data with JPEG, PNG or WebP."
    ),
    416: "The range begins after the end of the file.",
    421: "The server is not known by the name in `Host`.",
    422: "A field, header or parameter has a value that cannot be used.",
    429: "The key's rate or daily quota is used up. Send the request again after `Retry-After` seconds.",
    500: "The server failed. Its log has the details, under the request's id.",
    503: (
        "The server cannot do this now: it is full, starting, ending, or its storage does not work. Send the "
        "request again after `Retry-After` seconds."
    ),
    504: "The deadline has passed, or cannot be met.",
}
"""Meaning of each status of an error."""
DETAILS = {
    "sizes_differ": "the image is 256×341 and the mask 256×256; send equal sizes, or mask_resize=nearest",
    "no_key": "send a key: Authorization: Bearer KEY, or X-API-Key: KEY",
    "forbidden": "this key lacks the scope 'results:read'; use a key that has it",
    "link_expired": "the link has expired; fetch the result by its id, with an API key",
    "not_found": "no such path; GET /docs lists them",
    "model_not_found": "no model 'x'; GET /v1/models lists them",
    "method_not_allowed": "the path exists, but not for this method; GET /docs lists them",
    "upload_timeout": "the body did not arrive within 30 s; send it faster",
    "idempotency_in_progress": "an earlier request with this Idempotency-Key is in progress; try again later",
    "result_deleted": "result 663d946ba2b446b6b2c72730a3984034 was deleted",
    "too_many_pixels": (
        "`image`: the picture is 12000×9000, 108,000,000 pixels; the limit is 50,000,000; send a smaller one"
    ),
    "unsupported_type": "`image`: the file is of unknown type; send a JPEG, PNG or WebP",
    "range_not_satisfiable": "the file has 132238 bytes; ask for a range that begins within it",
    "unknown_host": (
        "this server is not known as 'images.example'; call it by its address, or start it with --public-host NAME"
    ),
    "invalid_option": "mask_mode: it must be 'white', 'black' or 'alpha'",
    "rate_limited": "this key's limit of 5 requests a second is exceeded; wait for Retry-After",
    "internal": "internal server error; the server's log has the details",
    "overloaded": "the server is full; retry in 2 s with this request's X-Request-ID",
    "deadline_exceeded": "the deadline passed before the answer was ready; allow more time",
}
"""Examples of `detail`, by the `code` of the problem; at least one for each status. The errors have these messages."""
