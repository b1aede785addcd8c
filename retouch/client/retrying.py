"""The decision whether, and after which pause, a request is sent again. Pure: randomness is an argument."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from retouch.client.replies import is_retryable, retry_after_s

_LONGEST_ASKED_S = 300.0
"""The longest `Retry-After` that an overloaded server computes. A longer one is that of a daily quota: no pause."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0
_LONGEST_POLL_PAUSE_S = 5.0
_BUSY = {429, 503}
_RESTARTING = {502, 503, 504}
"""Statuses of a server that restarts, or of the proxy before it."""
_MOST_UNEXPLAINED = 2


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request is sent again.

    Args:
        retries: after a refusal of a busy server: one with `Retry-After`, or of status 429 or 503.
        unexplained: after no reply, or another error that may pass; None for `retries`, at most 2.

    Raises:
        ValueError: a number is below 0.
    """

    retries: int = 2
    unexplained: int | None = None

    def __post_init__(self) -> None:
        for name, number in (("retries", self.retries), ("unexplained", self.unexplained)):
            if number is not None and number < 0:
                raise ValueError(f"{name} is {number}; pass a number from 0")

    def pause_after_refusal(self, response: httpx.Response, tries: int, draw: float) -> float | None:
        """Return the seconds until the next try; None to give up.

        Args:
            response: the reply, which is no success.
            tries: how often the request was sent, from 1.
            draw: a random number in [0, 1), so that clients do not return together.
        """
        if not is_retryable(response):
            return None
        asked_s = retry_after_s(response)
        if asked_s is None and response.status_code not in _BUSY:
            return self.pause_after_silence(tries, draw)
        pause_s = _doubling_s(tries, draw) if asked_s is None else asked_s
        return pause_s if tries <= self.retries and pause_s <= _LONGEST_ASKED_S else None

    def pause_after_silence(self, tries: int, draw: float) -> float | None:
        """Return the seconds until the next try after no reply; None to give up."""
        most = min(self.retries, _MOST_UNEXPLAINED) if self.unexplained is None else self.unexplained
        return _doubling_s(tries, draw) if tries <= most else None


def pause_of_a_restart(response: httpx.Response | None, tries: int, draw: float) -> float | None:
    """Return the seconds after which a server that may be restarting is asked again, whatever the policy says.

    Args:
        response: the reply, which is no success; None for no reply.
        tries: how often the request was sent, from 1.
        draw: a random number in [0, 1).

    Returns:
        None if the reply is not that of a restart: the policy decides.
    """
    pause_s = min(_doubling_s(tries, draw), _LONGEST_POLL_PAUSE_S)
    if response is None:
        return pause_s
    if response.status_code not in _RESTARTING or not is_retryable(response):
        return None
    asked_s = retry_after_s(response)
    return pause_s if asked_s is None else asked_s


def _doubling_s(tries: int, draw: float) -> float:
    """Return half a second, doubled with each try up to a minute, and up to a quarter more or less."""
    doublings = min(tries - 1, 10)  # a poll is tried so often that a larger power would be no float
    return float(min(_FIRST_PAUSE_S * 2**doublings, _LONGEST_PAUSE_S) * (0.75 + 0.5 * draw))
