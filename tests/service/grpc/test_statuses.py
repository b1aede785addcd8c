"""The gRPC status of each of our errors."""

from __future__ import annotations

import pytest
from grpc import StatusCode

from service.core import errors
from service.grpc.statuses import status_of, trailing_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidImage("x"), StatusCode.INVALID_ARGUMENT),
        (errors.Unauthorised("x"), StatusCode.UNAUTHENTICATED),
        (errors.Forbidden("x"), StatusCode.PERMISSION_DENIED),
        (errors.NotFound("x"), StatusCode.NOT_FOUND),
        (errors.MethodNotAllowed("x"), StatusCode.UNIMPLEMENTED),
        (errors.UploadTimeout("x"), StatusCode.DEADLINE_EXCEEDED),
        (errors.Conflict("x"), StatusCode.ABORTED),
        (errors.TooLarge("x"), StatusCode.INVALID_ARGUMENT),
        (errors.InvalidOption("x"), StatusCode.INVALID_ARGUMENT),
        (errors.TooManyRequests("x"), StatusCode.RESOURCE_EXHAUSTED),
        (errors.InferenceFailed("x"), StatusCode.INTERNAL),
        (errors.Overloaded("x"), StatusCode.RESOURCE_EXHAUSTED),
        (errors.NotReady("x"), StatusCode.UNAVAILABLE),
        (errors.ShuttingDown("x"), StatusCode.UNAVAILABLE),
        (errors.DeadlineExceeded("x"), StatusCode.DEADLINE_EXCEEDED),
    ],
)
def test_each_kind_of_error_has_its_code(error: errors.ServiceError, code: StatusCode) -> None:
    assert status_of(error) == (code, "x")


def test_no_error_of_a_client_is_the_servers_own_fault() -> None:
    for kind in errors.problem_kinds():
        made = kind(7) if kind is errors.RangeNotSatisfiable else kind("x")  # type: ignore[arg-type]
        if kind.status < 500 and kind not in (errors.RangeNotSatisfiable, errors.Misdirected):  # errors of HTTP alone
            assert status_of(made)[0] not in (StatusCode.INTERNAL, StatusCode.UNKNOWN), kind


def test_a_refusal_says_when_to_return_in_seconds_and_as_pushback() -> None:
    assert trailing_of(errors.Overloaded("x", retry_after_s=1.2)) == (
        ("x-error-code", "overloaded"),
        ("retry-after", "2"),
        ("grpc-retry-pushback-ms", "2000"),
    )
    assert trailing_of(errors.NotFound("x")) == (("x-error-code", "not_found"),)


def test_a_long_message_is_shortened() -> None:
    _, text = status_of(errors.NotFound("x" * 10_000))
    assert len(text) == 1024
