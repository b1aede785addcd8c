"""Every error that a client can see, with its HTTP status.

ServiceError
├── InvalidImage          the bytes are not an image that can be decoded      400
├── SizesDiffer           mask and image differ in size                       400
├── InvalidRequest        the endpoint does not accept the body               400
├── Unauthorised          no key, or one that is unknown or no longer valid   401
├── Forbidden             the key lacks the scope, or a foreign page asks     403
├── NotFound              no such result, job, model or path                  404
├── MethodNotAllowed      the path exists, the method does not                405
├── Gone                  the result was deleted                              410
├── UploadTimeout         the body did not arrive in time                     408
├── Conflict              another request conflicts with this one             409
├── TooLarge              too many bytes or pixels                            413
├── UnsupportedType       not JPEG, PNG or WebP; not multipart                415
├── RangeNotSatisfiable   the range lies outside the file                     416
├── Misdirected           the server is not known by this Host                421
├── InvalidOption         an option is unknown or out of range                422
├── TooManyRequests       the key's rate or quota is exceeded                 429
├── InferenceFailed       this batch failed; the engine keeps running         500
├── Overloaded            queue or spool is full; see `retry_after_s`         503
├── NotReady              models load, the worker restarts, the disk fails    503
├── ShuttingDown          draining; ask another replica                       503
└── DeadlineExceeded      the deadline of the request passed                  504

`Cancelled` is not among them: the client disconnected (logged as 499) or deleted its job.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, TypeVar

from engines.errors import RetouchError

T = TypeVar("T")


class ServiceError(RetouchError):
    """Base class of all errors that become an RFC 9457 problem.

    `code` is stable, for programs; the message is for people and says what to do. What it says after the semicolon may
    be `advice` that names fields and headers of this server's own API: other APIs give their own (`with_advice`).
    `field` is the field or file part that an error is about, if it is about one; other APIs give its name in their
    requests (`with_field`).
    """

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False
    default_code: ClassVar[str] = "internal"
    further_codes: ClassVar[tuple[str, ...]] = ("job_crashed", "order_lost")
    """Other codes that this class is raised with; the OpenAPI document enumerates them."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retry_after_s: float | None = None,
        advice: str = "",
        field: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.retry_after_s = retry_after_s
        self.advice = advice
        self.field = field
        self.begins_with_field = False

    def __str__(self) -> str:
        about = f"`{self.field}`: " if self.begins_with_field else ""
        return "; ".join(filter(None, (f"{about}{super().__str__()}", self.advice)))

    def with_field(self, field: str) -> ServiceError:
        """Return the same error about the field of that name; its message is the same unless it begins with it."""
        changed = copy(self)
        changed.field = field
        return changed

    def beginning_with(self, field: str) -> ServiceError:
        """Return the same error about a field, whose name its message then begins with."""
        changed = self.with_field(field)
        changed.begins_with_field = True
        return changed

    def with_advice(self, advice: str) -> ServiceError:
        """Return the same error with other advice; one without advice stays as it is."""
        if not self.advice:
            return self
        changed = copy(self)
        changed.advice = advice
        return changed

    def problem(self, request_id: str, instance: str) -> dict[str, Any]:
        """Return the body of an application/problem+json reply (RFC 9457)."""
        return {
            "type": f"urn:retouch:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": str(self),
            "instance": instance,
            "code": self.code,
            "request_id": request_id,
            "retryable": self.retryable,
        }


class InvalidImage(ServiceError):
    """The bytes are not an image that can be decoded; raised before any engine work."""

    status, title, default_code = 400, "Invalid image", "invalid_image"
    further_codes = ()


class SizesDiffer(ServiceError):
    """Mask and image differ in size."""

    status, title, default_code = 400, "Sizes differ", "sizes_differ"
    further_codes = ()


class InvalidRequest(ServiceError):
    """The endpoint does not accept the body."""

    status, title, default_code = 400, "Invalid request", "invalid_request"
    further_codes = ("missing_part", "empty_part", "repeated_part")


class Unauthorised(ServiceError):
    """The request has no key (`no_key`), or one that is unknown, revoked or expired; checked before anything else."""

    status, title, default_code = 401, "Unauthorised", "no_key"
    further_codes = ("unknown_key", "several_keys", "revoked_key", "expired_key")


class Forbidden(ServiceError):
    """The key lacks the scope for this request, a foreign page sent it, or the link is invalid or has expired."""

    status, title, default_code = 403, "Forbidden", "forbidden"
    further_codes = ("foreign_origin", "link_invalid", "link_expired")


class NotFound(ServiceError):
    """No such result, job, model or path."""

    status, title, default_code = 404, "Not found", "not_found"
    further_codes = ("model_not_found",)


class MethodNotAllowed(ServiceError):
    """The path exists, the method does not."""

    status, title, default_code = 405, "Method not allowed", "method_not_allowed"
    further_codes = ()


class UploadTimeout(ServiceError):
    """The body did not arrive in time."""

    status, title, default_code, retryable = 408, "Upload timeout", "upload_timeout", True
    further_codes = ()


class Conflict(ServiceError):
    """Another request conflicts with this one; a later try may succeed."""

    status, title, default_code, retryable = 409, "Conflict", "idempotency_in_progress", True
    further_codes = ()


class Gone(ServiceError):
    """The result was deleted by its owner, who is the only one to learn it; others get `NotFound`."""

    status, title, default_code = 410, "Gone", "result_deleted"
    further_codes = ()


class TooLarge(ServiceError):
    """The request has too many bytes (code `too_many_bytes`) or pixels (`too_many_pixels`)."""

    status, title, default_code = 413, "Too large", "too_many_bytes"
    further_codes = ("too_many_pixels",)


class UnsupportedType(ServiceError):
    """A file is not JPEG, PNG or WebP, or the body is not multipart/form-data."""

    status, title, default_code = 415, "Unsupported type", "unsupported_type"
    further_codes = ("animated_image", "not_ids", "unsupported_encoding")


class RangeNotSatisfiable(ServiceError):
    """The requested range begins after the end of the file, whose `size` is in bytes."""

    status, title, default_code = 416, "Range not satisfiable", "range_not_satisfiable"
    further_codes = ()

    def __init__(self, size: int) -> None:
        super().__init__(f"the file has {size} bytes; ask for a range that begins within it")
        self.size = size


class Misdirected(ServiceError):
    """The server is not known by the name in `Host`, which a page may have bound to this address (DNS rebinding)."""

    status, title, default_code = 421, "Misdirected request", "unknown_host"
    further_codes = ()


class InvalidOption(ServiceError):
    """An option is unknown or out of range, or the mask selects nothing or everything."""

    status, title, default_code = 422, "Invalid option", "invalid_option"
    further_codes = (
        *("wrong_task", "model_required", "job_needs_save", "idempotency_mismatch", "idempotency_key_invalid"),
        *("webhook_refused", "webhook_needs_job", "webhooks_off", "not_diverse", "unknown_class", "instance_not_taken"),
        *("reference_not_taken", "not_a_picture", "mask_empty", "mask_full", "no_alpha", "format_too_small"),
        *("cursor_invalid", "links_off", "texture_not_installed"),
    )


class TooManyRequests(ServiceError):
    """The key's rate (`rate_limited`) or its daily quota (`quota_exhausted`) is exceeded; has `retry_after_s`."""

    status, title, default_code, retryable = 429, "Too many requests", "rate_limited", True
    further_codes = ("quota_exhausted",)


class InferenceFailed(ServiceError):
    """The batch of this request failed; the engine keeps running."""

    status, title, default_code, retryable = 500, "Inference failed", "inference_failed", True
    further_codes = ("not_finite",)


class Overloaded(ServiceError):
    """The queue (`overloaded`) or the spool (`spool_full`) is full; nothing was accepted."""

    status, title, default_code, retryable = 503, "Overloaded", "overloaded", True
    further_codes = ("spool_full",)


class NotReady(ServiceError):
    """Models are loading, the worker is restarting, or the disk rejects writes (`storage_unavailable`)."""

    status, title, default_code, retryable = 503, "Not ready", "not_ready", True
    further_codes = ("worker_lost", "model_refused", "storage_unavailable", "ledger_unavailable")


class ShuttingDown(ServiceError):
    """The server is draining; ask another replica."""

    status, title, default_code, retryable = 503, "Shutting down", "shutting_down", True
    further_codes = ()


class DeadlineExceeded(ServiceError):
    """The request could not be answered before its deadline, which the client or the server sets."""

    status, title, default_code, retryable = 504, "Deadline exceeded", "deadline_exceeded", True
    further_codes = ()


class Cancelled(RetouchError):
    """The client disconnected or deleted its job; no response is needed."""


def about_file(part: str, work: Callable[[], T]) -> T:
    """Return the result of `work`, which reads the file of the part named `part`.

    Raises:
        InvalidImage, UnsupportedType, TooLarge: as `work`, with the part's name as `field`.
    """
    try:
        return work()
    except (InvalidImage, UnsupportedType, TooLarge) as error:
        raise error.beginning_with(part) from error


def problem_kinds() -> tuple[type[ServiceError], ...]:
    """Return every class of error that a client can see, the base class first."""
    return (ServiceError, *ServiceError.__subclasses__())


def codes_by_status() -> dict[int, tuple[str, ...]]:
    """Return every `code` that a problem of each status can have, the default code of each class first."""
    found: dict[int, tuple[str, ...]] = {}
    for kind in problem_kinds():
        found[kind.status] = (*found.get(kind.status, ()), kind.default_code, *kind.further_codes)
    return found
