"""The errors of the client. Each message says what is wrong; `retryable` tells whether the call may succeed later.

ClientError
├── ClientClosed            the client was closed before the call, or during it
├── AddressInvalid          an address is not http(s)://HOST:PORT, or an id is not valid
├── KeyFileUnreadable       the file with the API key cannot be read
├── KeyUnusable             a key or request id has characters that an HTTP header cannot carry
├── OptionUnusable          an option has a value, or a job pictures, that no server takes
├── PictureUnusable         what was passed as a picture cannot be sent
├── SeveralPictures         a result has several pictures, and the caller asked for the only one
├── NoReply                 the connection was refused, was cut off, or timed out
├── ReplyInvalid            the reply is not one of this API
├── Refused                 the server answered with a problem
│   ├── BadRequest            400    invalid_image, sizes_differ, invalid_request, …
│   ├── Unauthorised          401    no_key, unknown_key, …
│   ├── Forbidden             403    forbidden
│   ├── NotFound              404    not_found, model_not_found
│   ├── MethodNotAllowed      405    method_not_allowed
│   ├── UploadTimeout         408    upload_timeout
│   ├── Conflict              409    idempotency_in_progress
│   ├── Gone                  410    result_deleted
│   ├── TooLarge              413    too_many_bytes, too_many_pixels
│   ├── UnsupportedType       415    unsupported_type, animated_image, …
│   ├── RangeNotSatisfiable   416    range_not_satisfiable
│   ├── MisdirectedRequest    421    unknown_host
│   ├── InvalidOption         422    invalid_option, mask_empty, …
│   ├── TooManyRequests       429    rate_limited, quota_exhausted
│   ├── ServerFailed          500    internal, inference_failed, …
│   ├── Unavailable           503    overloaded, not_ready, …
│   └── DeadlineExceeded      504    deadline_exceeded
└── JobError                a job has no result
    ├── JobFailed             a job ended with a problem
    ├── JobCancelled          a job was cancelled
    └── JobUnfinished         a job did not end, or its result was not fetched, while `wait` waited for it
"""

from __future__ import annotations

from typing import ClassVar


class ClientError(Exception):
    """Root of the tree. `code` is stable, for programs; `retryable` says whether the same call may succeed later."""

    code: str = ""
    retryable: bool = False


class ClientClosed(ClientError):
    """The client, or the httpx client that it was given, was closed before the call or during it."""


class AddressInvalid(ClientError):
    """The server's address is not http(s)://HOST:PORT, or the id of a job or result is not valid."""


class KeyFileUnreadable(ClientError):
    """The file with the API key cannot be read."""


class KeyUnusable(ClientError):
    """The API key, an idempotency key or a request id has characters that an HTTP header cannot carry."""


class OptionUnusable(ClientError):
    """An option has a value that no server takes, or `submit` got other pictures than its task takes."""


class PictureUnusable(ClientError):
    """A value that was passed as a picture cannot be sent."""


class SeveralPictures(ClientError):
    """A result has several pictures, and the caller asked for the only one."""


class NoReply(ClientError):
    """The connection was refused, was cut off, or timed out."""

    retryable = True


class ReplyInvalid(ClientError):
    """The reply is not one of this API: the address may be that of another server."""


class Refused(ClientError):
    """The server answered with a problem (RFC 9457), or with another status than success.

    Args:
        message: the text for people.
        status: the HTTP status.
        code: the problem's code; empty if the reply was not a problem document.
        retryable: whether the same call may succeed later.
        request_id: the request's id in the server's log; empty if the reply named none.
        retry_after_s: the seconds after which the server expects to have capacity; None if it did not say.
    """

    status: int

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str = "",
        retryable: bool = False,
        request_id: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retryable = retryable
        self.request_id = request_id
        self.retry_after_s = retry_after_s


class BadRequest(Refused):
    """Status 400: a picture cannot be decoded, or the request is not what the call expects."""


class Unauthorised(Refused):
    """Status 401: the server requires a valid API key."""


class Forbidden(Refused):
    """Status 403: the API key lacks the scope."""


class NotFound(Refused):
    """Status 404: no such path, result, job or model."""


class MethodNotAllowed(Refused):
    """Status 405: the path exists, but not with this method."""


class UploadTimeout(Refused):
    """Status 408: the body did not arrive in time."""


class Conflict(Refused):
    """Status 409: an earlier request with this idempotency key is still being answered."""


class Gone(Refused):
    """Status 410: the result was deleted."""


class TooLarge(Refused):
    """Status 413: too many bytes or pixels."""


class UnsupportedType(Refused):
    """Status 415: a file is not JPEG, PNG or WebP, or cannot hold what the model needs."""


class RangeNotSatisfiable(Refused):
    """Status 416: the result has no such bytes."""


class MisdirectedRequest(Refused):
    """Status 421: the name in the address is not one of the server's names."""


class InvalidOption(Refused):
    """Status 422: an option is unknown or out of range, or the mask selects nothing or everything."""


class TooManyRequests(Refused):
    """Status 429: the rate or the daily quota of the API key is used up."""


class ServerFailed(Refused):
    """Status 500: the server failed, or the batch of this request did."""


class Unavailable(Refused):
    """Status 503: the server is full, loading, restarting, or cannot save."""


class DeadlineExceeded(Refused):
    """Status 504: the request could not be answered before its deadline."""


REFUSED_BY_STATUS: dict[int, type[Refused]] = {
    400: BadRequest,
    401: Unauthorised,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    408: UploadTimeout,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    415: UnsupportedType,
    416: RangeNotSatisfiable,
    421: MisdirectedRequest,
    422: InvalidOption,
    429: TooManyRequests,
    500: ServerFailed,
    503: Unavailable,
    504: DeadlineExceeded,
}
"""The exception of each status; another status raises `Refused` itself."""


class JobError(ClientError):
    """A job has no result. `job_id` names it."""

    def __init__(self, message: str, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobFailed(JobError):
    """A job ended with a problem; `status`, `code` and `retryable` are the problem's."""

    def __init__(self, message: str, job_id: str, *, status: int, code: str, retryable: bool) -> None:
        super().__init__(message, job_id)
        self.status = status
        self.code = code
        self.retryable = retryable


class JobCancelled(JobError):
    """A job was cancelled."""


class JobUnfinished(JobError):
    """Within the time of `wait`, a job was not known to have ended, or its result was not fetched; wait again."""

    retryable: ClassVar[bool] = True  # type: ignore[misc] # the same for every instance
