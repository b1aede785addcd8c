"""HTTP responses made from finished replies, jobs and errors."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fastapi.responses import JSONResponse, Response

from service.core.errors import RangeNotSatisfiable, ServiceError
from service.core.reply import Reply
from service.core.schemas import EncodedImage, ImageReply, ImagesReply
from service.intake.reply_facts import reply_facts, whole_seconds_to_return
from service.jobs.jobs_table import Job
from service.repeats.response_files import StoredResponse
from service.web.request_headers import wants_json, wants_multipart

PROBLEM_TYPE = "application/problem+json"


def image_response(reply: Reply, request_id: str, accept: str) -> Response:
    """Return one picture as a file or as JSON with base64; several as JSON or as multipart/mixed (RFC 2046)."""
    several = len(reply.pictures) > 1
    headers = reply_headers(reply)
    if several and wants_multipart(accept):
        boundary, body = _multipart(reply)
        return Response(body, media_type=f"multipart/mixed; boundary={boundary}", headers=headers)
    if not several and not wants_json(accept):
        return Response(reply.pictures[0].body, media_type=reply.media_type, headers=headers)
    described: dict[str, Any] = {
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
    images = [
        EncodedImage(image_base64=base64.b64encode(picture.body).decode("ascii"), result_url=picture.url)
        for picture in reply.pictures
    ]
    content = ImagesReply(**described, images=images) if several else ImageReply(**described, **images[0].model_dump())
    return JSONResponse(content.model_dump(), headers=headers)


def reply_headers(reply: Reply) -> dict[str, str]:
    """Return the headers that describe how the pictures were made and where they are stored."""
    return {"Vary": "Accept", **reply_facts(reply)}


def _multipart(reply: Reply) -> tuple[str, bytes]:
    """Return boundary and body; the boundary is a digest of the pictures, so none of them can contain it."""
    boundary = hashlib.sha256(b"".join(picture.body for picture in reply.pictures)).hexdigest()
    lines: list[bytes] = []
    for picture in reply.pictures:
        url = picture.url
        location = f"Location: {url}\r\n" if url else ""
        head = (
            f"--{boundary}\r\nContent-Type: {reply.media_type}\r\nContent-Length: {len(picture.body)}\r\n{location}\r\n"
        )
        lines += [head.encode("ascii"), picture.body, b"\r\n"]
    return boundary, b"".join((*lines, f"--{boundary}--\r\n".encode("ascii")))


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
