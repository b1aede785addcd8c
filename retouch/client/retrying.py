"""The decision whether, and after which pause, a request is sent again. Pure: randomness is an argument."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from retouch.client.replies import is_retryable, retry_after_s

_MAX_RETRY_AFTER_S = 300.0
"""The longest `Retry-After` in seconds that an overloaded server computes. A longer one is for a daily quota and is not
waited for."""
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.5, 60.0
_MAX_POLL_PAUSE_S = 5.0
_BUSY = {429, 503}
_RESTARTING = {502, 503, 504}
"""Statuses of a server that restarts, or of the proxy before it."""
_MAX_UNEXPLAINED = 2


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits on the retries of a request.

    Args:
        retries: retries after a refusal by a busy server: one with `Retry-After`, or with status 429 or 503.
        unexplained: retries after no reply, or after another error that may pass; None for `retries`, but at most 2.

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
            response: the reply, which is not a success.
            tries: how often the request was sent, at least 1.
            draw: a random number in [0, 1), which spreads the retries of many clients.
        """
        if not is_retryable(response):
            return None
        asked_s = retry_after_s(response)
        if asked_s is None and response.status_code not in _BUSY:
            return self.pause_after_silence(tries, draw)
        pause_s = _doubling_s(tries, draw) if asked_s is None else asked_s
        return pause_s if tries <= self.retries and pause_s <= _MAX_RETRY_AFTER_S else None

    def pause_after_silence(self, tries: int, draw: float) -> float | None:
        """Return the seconds until the next try after no reply; None to give up."""
        most = min(self.retries, _MAX_UNEXPLAINED) if self.unexplained is None else self.unexplained
        return _doubling_s(tries, draw) if tries <= most else None


def pause_of_a_restart(response: httpx.Response | None, tries: int, draw: float) -> float | None:
    """Return the seconds until the next try at a server that may be restarting, whatever the policy says.

    Args:
        response: the reply, which is not a success; None for no reply.
        tries: how often the request was sent, at least 1.
        draw: a random number in [0, 1).

    Returns:
        None if the reply does not come from a restarting server; then the policy decides.
    """
    pause_s = min(_doubling_s(tries, draw), _MAX_POLL_PAUSE_S)
    if response is None:
        return pause_s
    if response.status_code not in _RESTARTING or not is_retryable(response):
        return None
    return retry_after_s(response) or pause_s  # polls that do not pause, as "0" asks, would keep the server busy


def _doubling_s(tries: int, draw: float) -> float:
    """Return half a second, doubled with each further try up to a minute, and then changed by up to ± a quarter."""
    doublings = min(tries - 1, 10)  # a poll has so many tries that the power would exceed a float
    return float(min(_FIRST_PAUSE_S * 2**doublings, _MAX_PAUSE_S) * (0.75 + 0.5 * draw))
