"""The error for a request that would be answered after its deadline because others wait before it."""

from __future__ import annotations

import math

from service.core.errors import DeadlineExceeded, Overloaded, ServiceError


def late_answer_error(
    reason: str, answer_s: float, left_s: float, retry_after_s: float, *, deadline_from_client: bool, remedy: str = ""
) -> ServiceError:
    """Make the error, with a Retry-After at which there should be enough time.

    Args:
        reason: what delays the answer; the message begins with it.
        answer_s: predicted seconds until the answer.
        left_s: seconds until the deadline.
        retry_after_s: seconds after which the client should retry; rounded up, at least 1.
        deadline_from_client: whether the client chose the deadline.
        remedy: another thing to do, for the end of the message; begins with a comma.
    """
    rounded_s = max(1, math.ceil(retry_after_s))
    message = (
        f"{reason}: the answer would take {answer_s:.1f} s and {max(0.0, left_s):.1f} s are left; "
        f"retry in {rounded_s} s{remedy}"
    )
    if deadline_from_client:
        return DeadlineExceeded(f"{message}, or allow more time", retry_after_s=rounded_s)
    return Overloaded(message, retry_after_s=rounded_s)
