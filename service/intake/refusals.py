"""Refusals in every protocol: counts errors, and adds to them when to retry."""

from __future__ import annotations

from service.app import Service
from service.core.errors import ServiceError, ShuttingDown

_REJECTIONS = frozenset({401, 403, 421, 429, 503, 504})


def count_refusal(service: Service, error: ServiceError) -> None:
    """Count an error if it is a rejection, and set when to retry on a 503 that does not say so."""
    if error.status == 503 and error.retry_after_s is None:
        error.retry_after_s = service.ready_in_s()
    if error.status in _REJECTIONS:
        service.metrics.rejected.labels(error.code).inc()


def internal_error() -> ServiceError:
    """Return the error that a client gets for a failure that only the log explains."""
    return ServiceError("internal server error; the server's log has the details")


def cut_off_error(service: Service) -> ShuttingDown:
    """Return the error for a request that the end of the drain cut off."""
    return ShuttingDown(
        "the server shut down before this request was answered; ask another replica",
        retry_after_s=service.ready_in_s(),
    )
