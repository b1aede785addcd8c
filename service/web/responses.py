"""HTTP responses made from finished replies, jobs and errors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from fastapi.responses import JSONResponse, Response

from service.core.errors import RangeNotSatisfiable, ServiceError
from service.core.reply import Reply
from service.intake.large_bodies import off_loop
from service.intake.reply_facts import reply_facts, whole_seconds_to_return
from service.intake.written_bodies import json_body, multipart_body
from service.jobs.jobs_table import Job
from service.repeats.response_files import StoredResponse
from service.web.request_headers import wants_json, wants_multipart

PROBLEM_TYPE = "application/problem+json"


async def image_response(reply: Reply, request_id: str, accept: str) -> Response:
    """Return one picture as a file or as JSON with base64; several as JSON or as multipart/mixed (RFC 2046)."""
    several = len(reply.pictures) > 1
    headers = reply_headers(reply)
    if several and wants_multipart(accept):
        boundary, body = await off_loop(reply.nbytes, partial(multipart_body, reply))
        return Response(body, media_type=f"multipart/mixed; boundary={boundary}", headers=headers)
    if not several and not wants_json(accept):
        return Response(reply.pictures[0].body, media_type=reply.media_type, headers=headers)
    images = [{"image_base64": picture.body, "result_url": picture.url} for picture in reply.pictures]
    content = {**_described(reply, request_id), **({"images": images} if several else images[0])}
    body = await off_loop(reply.nbytes, partial(json_body, content))
    return Response(body, media_type="application/json", headers=headers)


def _described(reply: Reply, request_id: str) -> dict[str, Any]:
    """Return the facts of a JSON response."""
    return {
        "request_id": request_id,
        "model": reply.model,
        "engine": reply.engine,
        "batch_size": reply.batch_size,
        "mask_coverage": reply.coverage,
        "seed": reply.seed,
        "timings_ms": {stage: round(seconds * 1e3, 3) for stage, seconds in reply.timings.stages.items()},
        "media_type": reply.media_type,
        "width": reply.size.width,
        "height": reply.size.height,
    }


def reply_headers(reply: Reply) -> dict[str, str]:
    """Return the headers that describe how the pictures were made and where they are stored."""
    return {"Vary": "Accept", **reply_facts(reply)}


def job_response(job: Job, *, accepted: bool = False) -> Response:
    """Return the state of a job, which no cache may keep; `accepted` makes it the 202 response to its request."""
    if not accepted:
        return JSONResponse(job.reply().model_dump(), headers={"Cache-Control": "no-store"})
    headers = {"Location": f"/v1/jobs/{job.id}", "Preference-Applied": "respond-async"}
    return JSONResponse(job.reply().model_dump(), status_code=202, headers=headers)


def to_stored_response(response: Response) -> StoredResponse:
    """Convert a response to the form that is stored for repeated requests."""
    return StoredResponse(response.status_code, tuple(response.headers.items()), bytes(response.body))


def from_stored_response(kept: StoredResponse) -> Response:
    """Convert a stored response to an HTTP response."""
    return Response(kept.body, kept.status, dict(kept.headers))


def problem_response(
    error: ServiceError, request_id: str, path: str, further: Mapping[str, Any] = MappingProxyType({})
) -> Response:
    """Return an error as RFC 9457 problem details with `further` members; with Retry-After if the error has one."""
    problem = {**error.problem(request_id, path), **further}
    return JSONResponse(problem, error.status, error_headers(error), PROBLEM_TYPE)


def error_headers(error: ServiceError, scheme: str = "Bearer") -> dict[str, str]:
    """Return the headers of an error's response, independent of its body's format.

    Args:
        error: the error.
        scheme: authentication scheme for `WWW-Authenticate` in a 401.
    """
    headers: dict[str, str] = {}
    if (seconds := whole_seconds_to_return(error)) is not None:
        headers["Retry-After"] = str(seconds)
    if error.status == 401:
        headers["WWW-Authenticate"] = f'{scheme} realm="retouch"'
    if isinstance(error, RangeNotSatisfiable):
        headers["Content-Range"] = f"bytes */{error.size}"
    return headers
