"""From a finished reply, a job or an error to an HTTP response."""

from __future__ import annotations

import base64
import math
from typing import Any

from fastapi.responses import JSONResponse, Response

from service.errors import ServiceError
from service.items import Reply
from service.jobs import Job
from service.schemas import ImageReply

PROBLEM_TYPE = "application/problem+json"


def image_response(reply: Reply, request_id: str, *, as_json: bool) -> Response:
    """The picture itself, or the same as JSON with base64; the headers are the same."""
    url = result_url(reply)
    headers = {
        "X-Model": reply.model,
        "X-Engine": reply.engine,
        "X-Batch-Size": str(reply.batch_size),
        "Server-Timing": reply.timings.header(),
        **({"X-Mask-Coverage": f"{reply.coverage:.6f}"} if reply.coverage is not None else {}),
        **({"Location": url} if url else {}),
    }
    if not as_json:
        return Response(reply.body, media_type=reply.media_type, headers=headers)
    body = ImageReply(
        request_id=request_id,
        model=reply.model,
        engine=reply.engine,
        batch_size=reply.batch_size,
        mask_coverage=reply.coverage,
        timings_ms={stage: round(seconds * 1e3, 3) for stage, seconds in reply.timings.stages.items()},
        media_type=reply.media_type,
        width=reply.size.width,
        height=reply.size.height,
        image_base64=base64.b64encode(reply.body).decode("ascii"),
        result_url=url,
    )
    return JSONResponse(body.model_dump(), headers=headers)


def result_url(reply: Reply) -> str | None:
    """Where the stored result is, as a path."""
    return f"/v1/results/{reply.result_id}" if reply.result_id else None


def job_response(job: Job, *, accepted: bool = False) -> Response:
    """The state of a job; `accepted` is the 202 that starts it."""
    headers = {"Location": f"/v1/jobs/{job.id}", "Preference-Applied": "respond-async"} if accepted else {}
    return JSONResponse(job.reply().model_dump(), status_code=202 if accepted else 200, headers=headers)


def problem_response(error: ServiceError, request_id: str, path: str) -> Response:
    """An error as RFC 9457 problem details, with a computed Retry-After where trying again helps."""
    headers: dict[str, Any] = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    elif error.status == 503:
        headers["Retry-After"] = "1"
    return JSONResponse(error.problem(request_id, path), error.status, headers, PROBLEM_TYPE)
