"""The error for a request that would be answered after its deadline because others wait before it."""

from __future__ import annotations

import math

from service.core.errors import DeadlineExceeded, Overloaded, ServiceError


def late_answer_error(
    why: str, answer_s: float, left_s: float, pause_s: float, *, own_deadline: bool, way_out: str = ""
) -> ServiceError:
    """Make the error, with a Retry-After at which there should be enough time.

    Args:
        why: what delays the answer; the message begins with it.
        answer_s: predicted seconds until the answer.
        left_s: seconds until the deadline.
        pause_s: seconds after which the client should retry; rounded up, at least 1.
        own_deadline: whether the client chose the deadline.
        way_out: another remedy, for the end of the message; begins with a comma.
    """
    pause = max(1, math.ceil(pause_s))
    message = (
        f"{why}: the answer would take {answer_s:.1f} s and {max(0.0, left_s):.1f} s are left; come back in {pause} s"
        f"{way_out}"
    )
    if own_deadline:
        return DeadlineExceeded(f"{message}, or allow more", retry_after_s=pause)
    return Overloaded(message, retry_after_s=pause)
