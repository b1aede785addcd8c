"""Requests to end the server, counted from its signals.

One request can arrive as several signals. A service manager signals every process of the group, and so do the launcher
(its front ends) and `make` (its commands, with SIGTERM): a signal that follows at once is no second request, and SIGHUP
never is (sighup.py).
"""

from __future__ import annotations

from service.lifecycle.sighup import is_hangup

LAUNCHER_APART_S = 1.0
FRONT_END_APART_S = 0.5
"""Half of the launcher's interval, because a front end may handle the first of two requests late. Not less, because a
repeat that the launcher passes on late must not cut the drain short: an ignored request can be repeated, lost work
cannot."""


class EndRequests:
    """The number of requests to end the server.

    Args:
        apart_s: seconds from one request to the next; signals that come sooner are the same request.
    """

    def __init__(self, apart_s: float = 0.5) -> None:
        self._apart_s = apart_s
        self._last_at: float | None = None
        self.count = 0

    def add(self, number: int, now: float) -> bool:
        """Count a signal, if it is a new request; returns whether it is. `now` is in seconds on a monotonic clock."""
        if is_hangup(number) or (self._last_at is not None and now - self._last_at < self._apart_s):
            return False
        self._last_at = now
        self.count += 1
        return True
