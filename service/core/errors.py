"""Every error a client can see, and the one table that gives it a status.

ServiceError
├── InvalidImage          the bytes are not an image we can decode            400
├── SizesDiffer           mask and image differ in size                       400
├── InvalidRequest        the body is not what the endpoint takes             400
├── Unauthorised          no key, or one that is not known or holds no more   401
├── Forbidden             the key has not the scope                         403
├── NotFound              no such result, job, model or path                  404
├── MethodNotAllowed      the path exists, the method does not                405
├── UploadTimeout         the body did not come in time                       408
├── Conflict              another request stands in the way of this one       409
├── TooLarge              too many bytes or pixels                            413
├── UnsupportedType       not JPEG, PNG or WebP; not multipart                415
├── InvalidOption         an option is unknown or out of range                422
├── TooManyRequests       over this key's rate or quota; see `retry_after_s`  429
├── InferenceFailed       this batch failed; the engine lives on              500
├── Overloaded            queue or spool is full; see `retry_after_s`         503
├── NotReady              models load, the worker restarts, the disk is full  503
├── ShuttingDown          draining; ask another replica                       503
└── DeadlineExceeded      it could not be answered in the time allowed        504

`Cancelled` is no error of the service: the client left (logged as 499) or deleted its job.
"""

from __future__ import annotations

from typing import Any, ClassVar

from engines.errors import RetouchError


class ServiceError(RetouchError):
    """Base of all errors that become an RFC 9457 problem.

    `code` is stable and for programs; the message is for people and says what to do.
    """

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False
    default_code: ClassVar[str] = "internal"
    further_codes: ClassVar[tuple[str, ...]] = ("job_crashed", "order_lost")
    """All others that it is raised with: the OpenAPI document enumerates them."""

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.retry_after_s = retry_after_s

    def problem(self, request_id: str, instance: str) -> dict[str, Any]:
        """The body of an application/problem+json reply (RFC 9457)."""
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
    """The bytes are not an image we can decode; raised before any engine work."""

    status, title, default_code = 400, "Invalid image", "invalid_image"
    further_codes = ()


class SizesDiffer(ServiceError):
    """Mask and image differ in size; the message names both."""

    status, title, default_code = 400, "Sizes differ", "sizes_differ"
    further_codes = ()


class InvalidRequest(ServiceError):
    """The body is not what the endpoint takes."""

    status, title, default_code = 400, "Invalid request", "invalid_request"
    further_codes = ("missing_part", "empty_part", "repeated_part")


class Unauthorised(ServiceError):
    """No key (`no_key`), or one that is not known, was revoked or has expired; nothing else was looked at."""

    status, title, default_code = 401, "Unauthorised", "no_key"
    further_codes = ("unknown_key", "several_keys", "revoked_key", "expired_key")


class Forbidden(ServiceError):
    """The key is known and its scopes do not cover this."""

    status, title, default_code = 403, "Forbidden", "forbidden"
    further_codes = ()


class NotFound(ServiceError):
    """No such result, job, model or path."""

    status, title, default_code = 404, "Not found", "not_found"
    further_codes = ("model_not_found",)


class MethodNotAllowed(ServiceError):
    """The path exists, the method does not."""

    status, title, default_code = 405, "Method not allowed", "method_not_allowed"
    further_codes = ()


class UploadTimeout(ServiceError):
    """The body did not come in time."""

    status, title, default_code, retryable = 408, "Upload timeout", "upload_timeout", True
    further_codes = ()


class Conflict(ServiceError):
    """Another request stands in the way of this one; later it may not."""

    status, title, default_code, retryable = 409, "Conflict", "idempotency_in_progress", True
    further_codes = ()


class TooLarge(ServiceError):
    """Too many bytes (code `too_many_bytes`) or pixels (`too_many_pixels`)."""

    status, title, default_code = 413, "Too large", "too_many_bytes"
    further_codes = ("too_many_pixels",)


class UnsupportedType(ServiceError):
    """Not JPEG, PNG or WebP; or the body is not multipart/form-data."""

    status, title, default_code = 415, "Unsupported type", "unsupported_type"
    further_codes = ("animated_image", "not_ids", "unsupported_encoding")


class InvalidOption(ServiceError):
    """An option is unknown or out of range, or the mask selects nothing or everything."""

    status, title, default_code = 422, "Invalid option", "invalid_option"
    further_codes = (
        *("wrong_task", "model_required", "job_needs_save", "idempotency_mismatch", "idempotency_key_invalid"),
        *("webhook_refused", "webhook_needs_job", "webhooks_off", "not_diverse", "unknown_class", "instance_not_taken"),
        *("reference_not_taken", "not_a_picture", "mask_empty", "mask_full", "no_alpha", "format_too_small"),
    )


class TooManyRequests(ServiceError):
    """Over the key's rate (`rate_limited`) or its quota of the day (`quota_exhausted`)."""

    status, title, default_code, retryable = 429, "Too many requests", "rate_limited", True
    further_codes = ("quota_exhausted",)


class InferenceFailed(ServiceError):
    """The batch this request was in failed; the engine lives on."""

    status, title, default_code, retryable = 500, "Inference failed", "inference_failed", True
    further_codes = ("not_finite",)


class Overloaded(ServiceError):
    """The queue (`overloaded`) or the spool (`spool_full`) is full; nothing was accepted."""

    status, title, default_code, retryable = 503, "Overloaded", "overloaded", True
    further_codes = ("spool_full",)


class NotReady(ServiceError):
    """Models are loading, the worker is being restarted, or the disk takes nothing now (`storage_unavailable`)."""

    status, title, default_code, retryable = 503, "Not ready", "not_ready", True
    further_codes = ("worker_lost", "model_refused", "storage_unavailable", "ledger_unavailable")


class ShuttingDown(ServiceError):
    """The server is draining; ask another replica."""

    status, title, default_code, retryable = 503, "Shutting down", "shutting_down", True
    further_codes = ()


class DeadlineExceeded(ServiceError):
    """It could not be answered in the time that the client or the server allows."""

    status, title, default_code, retryable = 504, "Deadline exceeded", "deadline_exceeded", True
    further_codes = ()


class Cancelled(RetouchError):
    """The client left or deleted its job; nobody is waiting for an answer."""


def problem_kinds() -> tuple[type[ServiceError], ...]:
    """Every class of error that a client can see, the base first."""
    return (ServiceError, *ServiceError.__subclasses__())


def codes_by_status() -> dict[int, tuple[str, ...]]:
    """Every `code` that a problem of a status can have, the most usual of each class first."""
    found: dict[int, tuple[str, ...]] = {}
    for kind in problem_kinds():
        found[kind.status] = (*found.get(kind.status, ()), kind.default_code, *kind.further_codes)
    return found
