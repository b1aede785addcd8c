"""Reads the server's replies: a result from a success, an exception from a problem. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import httpx

from retouch.client.address import for_messages, id_at_end
from retouch.client.errors import REFUSED_BY_STATUS, JobCancelled, JobError, JobFailed, Refused, ReplyInvalid
from retouch.client.results import JobState, Model, Picture, Result, ResultPage, StoredResult

T = TypeVar("T")
_TIMED = re.compile(r"([\w-]+);dur=([\d.]+)")
_RETRYABLE_WITHOUT_PROBLEM = {408, 429, 502, 503, 504}
"""Statuses of proxies and load balancers after which another try may succeed."""


def read_result(response: httpx.Response) -> Result:
    """Return the pictures of a reply to a call for pictures, with what its headers say.

    Raises:
        ReplyInvalid: it holds no pictures.
    """
    return _checked(response, _result)


def read_stored(image: httpx.Response, sidecar: httpx.Response) -> Result:
    """Return a stored result from its image and its sidecar.

    Raises:
        ReplyInvalid: the replies are not a picture and a sidecar.
    """
    (picture,) = _checked(image, _pictures)
    return _checked(sidecar, lambda response: _stored(picture, response.json()))


def joined(results: list[Result]) -> Result:
    """Return the stored results of one job as one result with several pictures."""
    return replace(results[0], pictures=tuple(picture for result in results for picture in result.pictures))


def read_job(response: httpx.Response) -> JobState:
    """Return the state of a job.

    Raises:
        ReplyInvalid: the reply is not a job.
    """
    return _checked(response, lambda reply: _job(reply.json()))


def read_models(response: httpx.Response) -> tuple[Model, ...]:
    """Return the model versions of the server.

    Raises:
        ReplyInvalid: the reply is not a list of models.
    """
    return _checked(response, lambda reply: tuple(_model(entry) for entry in reply.json()["models"]))


def read_page(response: httpx.Response) -> ResultPage:
    """Return a page of the list of stored results.

    Raises:
        ReplyInvalid: the reply is not such a page.
    """
    return _checked(response, lambda reply: _page(reply.json()))


def read_thumbnail(response: httpx.Response) -> Picture:
    """Return the thumbnail of a stored result.

    Raises:
        ReplyInvalid: the reply is not a picture.
    """
    return _checked(response, lambda reply: _picture(reply.content, reply.headers))


def refusal(response: httpx.Response, tries: int = 1) -> Refused:
    """Return the exception for a reply that is not a success.

    Args:
        response: the reply.
        tries: how often the request was sent; the message says so if more than once.
    """
    code, detail = code_and_detail(response.content)
    if response.has_redirect_location:  # such as that of a proxy that requires https
        where = for_messages(response.headers["Location"])
        detail = f"the server redirects to {where}; redirects are not followed, so give that address"
    status = response.status_code
    tried = f" ({tries} tries)" if tries > 1 else ""
    kind = REFUSED_BY_STATUS.get(status, Refused)
    return kind(
        f"{status} {code or response.reason_phrase}: {detail}{tried}",
        status=status,
        code=code,
        retryable=is_retryable(response),
        request_id=response.headers.get("X-Request-ID", ""),
        retry_after_s=retry_after_s(response),
    )


def job_error(job: JobState) -> JobError:
    """Return the exception for a job that has ended without a result."""
    if job.status == "cancelled":
        return JobCancelled(f"job {job.id} was cancelled", job.id)
    problem = job.problem or {}
    code, detail = str(problem.get("code", "")), problem.get("detail", "the server gave no reason")
    return JobFailed(
        f"job {job.id} failed: {code}: {detail}",
        job.id,
        status=int(problem.get("status", 500)),
        code=code,
        retryable=bool(problem.get("retryable", False)),
    )


def is_retryable(response: httpx.Response) -> bool:
    """Return whether another try may succeed: as the problem says, otherwise by the status."""
    said = _problem(response.content).get("retryable")
    return said if isinstance(said, bool) else response.status_code in _RETRYABLE_WITHOUT_PROBLEM


def retry_after_s(response: httpx.Response) -> float | None:
    """Return the seconds in Retry-After; None without one, or with a date, which this server never sends."""
    text = response.headers.get("Retry-After", "")
    return float(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def code_and_detail(body: bytes) -> tuple[str, str]:
    """Return `code` and `detail` of a problem reply; for other bodies an empty code and the start of the text."""
    problem = _problem(body)
    if "code" in problem and "detail" in problem:
        return str(problem["code"]), str(problem["detail"])
    return "", body[:200].decode("utf-8", "replace")


def _problem(body: bytes) -> Mapping[str, Any]:
    try:
        problem = httpx.Response(200, content=body).json()
    except (ValueError, RecursionError):
        return {}
    return problem if isinstance(problem, dict) else {}


def _checked(response: httpx.Response, read: Callable[[httpx.Response], T]) -> T:
    """Read a reply; if it lacks anything, raise ReplyInvalid, which describes the reply."""
    try:
        return read(_with_body(response))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        kind = response.headers.get("Content-Type", "no content type")
        raise ReplyInvalid(
            f"the reply from {for_messages(str(response.url))} ({kind}) is not one of this API: is it a Retouch server?"
        ) from error


def _with_body(response: httpx.Response) -> httpx.Response:
    if not response.content:  # a content type alone does not make a picture
        raise ValueError("the reply is empty")
    return response


def _result(response: httpx.Response) -> Result:
    headers = response.headers
    return Result(
        pictures=_pictures(response),
        model=headers.get("X-Model", ""),
        engine=headers.get("X-Engine", ""),
        seed=_optional(int, headers.get("X-Seed")),
        mask_coverage=_optional(float, headers.get("X-Mask-Coverage")),
        batch_size=int(headers.get("X-Batch-Size", "1")),
        timings_ms={name: float(ms) for name, ms in _TIMED.findall(headers.get("Server-Timing", ""))},
        request_id=headers.get("X-Request-ID", ""),
    )


def _pictures(response: httpx.Response) -> tuple[Picture, ...]:
    """Return the picture of a reply, or the parts of a multipart/mixed body."""
    content_type = response.headers["Content-Type"]
    if not content_type.startswith("multipart/mixed"):
        return (_picture(response.content, response.headers),)
    delimiter = b"\r\n--" + content_type.partition("boundary=")[2].strip('"').encode("latin-1")
    _, *parts, _ = (b"\r\n" + response.content).split(delimiter)
    found = []
    for part in parts:
        head, _, body = part.partition(b"\r\n\r\n")
        lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n") if line)
        found.append(_picture(body, httpx.Headers([(name, value.strip()) for name, _, value in lines])))
    return tuple(found)


def _picture(body: bytes, headers: httpx.Headers) -> Picture:
    media_type = headers["Content-Type"].partition(";")[0]
    if not media_type.startswith("image/"):
        raise ValueError(f"{media_type} is not a picture")
    return Picture(body, media_type, headers.get("Location"))


def _stored(picture: Picture, sidecar: Mapping[str, Any]) -> Result:
    return Result(
        pictures=(Picture(picture.bytes, picture.media_type, f"/v1/results/{sidecar['id']}"),),
        model=sidecar["model"],
        engine=sidecar["engine"],
        seed=sidecar.get("seed"),
        mask_coverage=sidecar["mask_coverage"],
        batch_size=sidecar["batch_size"],
        timings_ms=sidecar["timings_ms"],
        request_id=sidecar["request_id"],
    )


def _job(entry: Mapping[str, Any]) -> JobState:
    return JobState(
        id=id_at_end(entry["id"]),
        status=entry["status"],
        created=entry["created"],
        result_urls=tuple(entry["result_urls"]),
        problem=entry["problem"],
        webhook=entry["webhook"],
    )


def _page(entry: Mapping[str, Any]) -> ResultPage:
    fields = StoredResult.__dataclass_fields__
    found = tuple(StoredResult(**{name: one[name] for name in fields}) for one in entry["results"])
    return ResultPage(found, entry["next_cursor"])


def _model(entry: Mapping[str, Any]) -> Model:
    return Model(**{name: entry[name] for name in Model.__dataclass_fields__})


def _optional(convert: Callable[[str], T], text: str | None) -> T | None:
    return None if text is None else convert(text)
