"""Requests to end the server, counted from its signals.

One request can arrive as several signals: a service manager signals every process of a group, the launcher its front
ends, and `make` its commands (with SIGTERM). Therefore a signal that follows at once does not count as a second
request, and SIGHUP never does (sighup.py). A front end counts a second request only from its launcher, by a signal of
its own: the launcher may pass SIGTERM on late, and if that counted, one request could cut the drain short. An ignored
request can be repeated; lost work cannot be restored.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FrameType

from service.lifecycle.sighup import hangup_signals, is_hangup

Handler = Callable[[int, FrameType | None], None]
APART_S = 1.0
"""Least number of seconds between two requests."""


class EndRequests:
    """The number of requests to end the server.

    Args:
        apart_s: least number of seconds between two requests; a signal that comes sooner belongs to the same request.
        second: number of the only signal that is a request after the first one; None: every signal but SIGHUP is.
    """

    def __init__(self, apart_s: float = APART_S, second: int | None = None) -> None:
        self._apart_s, self._second = apart_s, second
        self._last_at: float | None = None
        self.count = 0

    @property
    def other_signals(self) -> frozenset[int]:
        """The numbers of the signals to be handled besides SIGTERM and SIGINT."""
        return hangup_signals() | ({self._second} if self._second is not None else frozenset())

    def add(self, number: int, now: float) -> bool:
        """Count a signal if it is a new request, and return whether it is; `now`: on a monotonic clock, in seconds."""
        if number == self._second:
            self.count = max(2, self.count + 1)
            return True
        if is_hangup(number) or self._is_repeated(now):
            return False
        self._last_at = now
        self.count += 1
        return True

    def _is_repeated(self, now: float) -> bool:
        if self._second is not None:
            return self.count > 0
        return self._last_at is not None and now - self._last_at < self._apart_s


@contextmanager
def handling_signals(numbers: Iterable[int], handle: Handler) -> Generator[None, None, None]:
    """Call `handle` for each of these signals while the block runs. On the main thread only."""
    usual = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
