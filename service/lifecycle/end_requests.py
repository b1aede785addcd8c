"""Requests to end the server, counted from its signals.

One request can arrive as several signals: a service manager signals every process of a group, the launcher its front
ends, and `make` its commands (with SIGTERM). Therefore a signal that follows at once does not count as a second
request, and SIGHUP never does (sighup.py).
"""

from __future__ import annotations

from service.lifecycle.sighup import is_hangup

LAUNCHER_APART_S = 1.0
"""Least number of seconds between two requests to end a launcher."""
FRONT_END_APART_S = 0.5
"""The same for a front end or a server in one process: half of it, because a front end may handle the first of two
requests late. Not shorter, because the launcher may pass on a repeated signal late, and that must not cut the drain
short: an ignored request can be repeated, but lost work cannot be restored."""


class EndRequests:
    """The number of requests to end the server.

    Args:
        apart_s: least number of seconds between two requests; a signal that comes sooner belongs to the same request.
    """

    def __init__(self, apart_s: float = FRONT_END_APART_S) -> None:
        self._apart_s = apart_s
        self._last_at: float | None = None
        self.count = 0

    def add(self, number: int, now: float) -> bool:
        """Count a signal if it is a new request, and return whether it is; `now`: on a monotonic clock, in seconds."""
        if is_hangup(number) or (self._last_at is not None and now - self._last_at < self._apart_s):
            return False
        self._last_at = now
        self.count += 1
        return True
